//! The declarations of objects, methods and attributes, as text.

use std::path::Path;
use std::path::PathBuf;

use verbgate_abi_gen::facts::Access;
use verbgate_abi_gen::facts::Class;
use verbgate_abi_gen::facts::Kind;

use crate::Error;
use crate::text;
use crate::text::Call;
use crate::text::Source;
use crate::tree;

/// `DECLARE_UVERBS_NAMED_OBJECT` and its like.
#[derive(Clone, Debug)]
pub(crate) struct ObjectDecl {
    pub(crate) name: String,
    /// None: methods that are added to an object, or an object without instances.
    pub(crate) r#type: Option<(String, Class)>,
    pub(crate) methods: Vec<String>,
    /// Says that there is such an object, and does not only add methods to one.
    pub(crate) declares: bool,
    pub(crate) place: Place,
}

/// `DECLARE_UVERBS_NAMED_METHOD` and its like.
#[derive(Clone, Debug)]
pub(crate) struct MethodDecl {
    pub(crate) name: String,
    /// The object, where the macro says so.
    pub(crate) object: Option<String>,
    pub(crate) attrs: Vec<AttrDecl>,
    /// Has a handler, and does not only add attributes to one.
    pub(crate) declares: bool,
    pub(crate) place: Place,
}

/// One of `UVERBS_ATTR_*`.
#[derive(Clone, Debug)]
pub(crate) struct AttrDecl {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) ctype: Option<String>,
    pub(crate) object: Option<(String, Access)>,
    /// The macro's call; an enum's array has another name there.
    pub(crate) code: String,
    /// Which of the definitions that the call stands for.
    pub(crate) index: usize,
    /// An enum's elements: the initialiser of the array.
    pub(crate) elems: Option<(String, String)>,
    /// The file's own macros that the call or the elements use.
    pub(crate) defines: Vec<String>,
}

/// Where something is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    /// `core` or a driver's folder.
    pub(crate) provider: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// All declarations of one file.
#[derive(Debug, Default)]
pub(crate) struct Declarations {
    pub(crate) objects: Vec<ObjectDecl>,
    pub(crate) methods: Vec<MethodDecl>,
}

/// Macros that list commands of write(2), which are read elsewhere.
const OF_WRITE: &[&str] =
    &["DECLARE_UVERBS_OBJECT", "DECLARE_UVERBS_WRITE", "DECLARE_UVERBS_WRITE_EX"];

impl Declarations {
    /// Reads a file. A macro that is not known is an error: what it declares would be missing in
    /// the tables, and refused without a reason.
    pub(crate) fn read(&mut self, source: &Source) -> Result<(), Error> {
        let declares = |name: &str| {
            ["DECLARE_UVERBS_", "ADD_UVERBS_"].iter().any(|prefix| name.starts_with(prefix))
        };
        for call in source.calls(declares) {
            let place = place(&source.path, call.line);
            if tree::provider(&source.path).is_none() {
                return Err(Error::NoOwner { place: place.to_string() });
            }
            match call.name.as_str() {
                "DECLARE_UVERBS_NAMED_METHOD" | "DECLARE_UVERBS_NAMED_METHOD_DESTROY" => {
                    self.method(source, &call, place)?;
                }
                "ADD_UVERBS_ATTRIBUTES_SIMPLE" => self.attributes(source, &call, place)?,
                "DECLARE_UVERBS_NAMED_OBJECT" => self.object(&call, place)?,
                "DECLARE_UVERBS_GLOBAL_METHODS" => self.methods(&call, 0, place)?,
                "ADD_UVERBS_METHODS" => self.methods(&call, 1, place)?,
                name if OF_WRITE.contains(&name) => {}
                name => {
                    return Err(Error::UnknownMacro {
                        name: name.into(),
                        place: place.to_string(),
                    });
                }
            }
        }
        Ok(())
    }

    fn method(&mut self, source: &Source, call: &Call, place: Place) -> Result<(), Error> {
        let name = arg(call, 0, &place)?;
        let attrs = attrs(source, call, 1, &place)?;
        self.methods.push(MethodDecl { name, object: None, attrs, declares: true, place });
        Ok(())
    }

    fn attributes(&mut self, source: &Source, call: &Call, place: Place) -> Result<(), Error> {
        let (object, name) = (Some(arg(call, 1, &place)?), arg(call, 2, &place)?);
        let attrs = attrs(source, call, 3, &place)?;
        self.methods.push(MethodDecl { name, object, attrs, declares: false, place });
        Ok(())
    }

    fn object(&mut self, call: &Call, place: Place) -> Result<(), Error> {
        let r#type = arg(call, 1, &place)?;
        let class = match r#type.split('(').next().unwrap_or_default() {
            "UVERBS_TYPE_ALLOC_IDR" | "UVERBS_TYPE_ALLOC_IDR_SZ" => Class::Idr,
            "UVERBS_TYPE_ALLOC_FD" | "UVERBS_TYPE_ALLOC_FD_RELEASE" => Class::Fd,
            name => {
                return Err(Error::UnknownMacro { name: name.into(), place: place.to_string() });
            }
        };
        let methods = references(call, 2, &place)?;
        let name = arg(call, 0, &place)?;
        self.objects.push(ObjectDecl {
            name,
            r#type: Some((r#type, class)),
            methods,
            declares: true,
            place,
        });
        Ok(())
    }

    fn methods(&mut self, call: &Call, object: usize, place: Place) -> Result<(), Error> {
        let methods = references(call, object.saturating_add(1), &place)?;
        let name = arg(call, object, &place)?;
        self.objects.push(ObjectDecl { name, r#type: None, methods, declares: object == 0, place });
        Ok(())
    }
}

pub(crate) fn place(file: &Path, line: usize) -> Place {
    let provider = tree::provider(file).unwrap_or("?").to_owned();
    Place { file: file.to_owned(), line, provider }
}

fn arg(call: &Call, at: usize, place: &Place) -> Result<String, Error> {
    call.args
        .get(at)
        .cloned()
        .ok_or_else(|| Error::Arguments { name: call.name.clone(), place: place.to_string() })
}

/// `&UVERBS_METHOD(X), ...`: the names.
fn references(call: &Call, from: usize, place: &Place) -> Result<Vec<String>, Error> {
    let rest = call.args.get(from..).unwrap_or_default();
    rest.iter()
        .map(|text| {
            let inner = text.strip_prefix('&').and_then(text::call);
            match inner {
                Some(inner) if inner.name == "UVERBS_METHOD" => arg(&inner, 0, place),
                _ => Err(Error::UnknownMacro { name: text.clone(), place: place.to_string() }),
            }
        })
        .collect()
}

fn attrs(source: &Source, call: &Call, from: usize, place: &Place) -> Result<Vec<AttrDecl>, Error> {
    let mut attrs = Vec::new();
    for text in call.args.get(from..).unwrap_or_default() {
        let unknown = || Error::UnknownMacro { name: text.clone(), place: place.to_string() };
        let call = text::call(text).ok_or_else(unknown)?;
        if call.name == "UVERBS_ATTR_UHW" {
            attrs.extend(uhw(text));
        } else {
            attrs.push(attr(source, text, &call, place)?);
        }
    }
    Ok(attrs)
}

/// The one macro that stands for two attributes.
fn uhw(text: &str) -> [AttrDecl; 2] {
    let one = |name: &str, kind, index| AttrDecl {
        name: name.to_owned(),
        kind,
        ctype: Some("UVERBS_ATTR_MIN_SIZE(0)".to_owned()),
        object: None,
        code: text.to_owned(),
        index,
        elems: None,
        defines: Vec::new(),
    };
    [one("UVERBS_ATTR_UHW_IN", Kind::PtrIn, 0), one("UVERBS_ATTR_UHW_OUT", Kind::PtrOut, 1)]
}

fn attr(source: &Source, text: &str, call: &Call, place: &Place) -> Result<AttrDecl, Error> {
    let unknown = |name: &str| Error::UnknownMacro { name: name.into(), place: place.to_string() };
    let name = arg(call, 0, place)?;
    let second = || arg(call, 1, place);
    let (kind, ctype) = match call.name.as_str() {
        "UVERBS_ATTR_PTR_IN" => (Kind::PtrIn, Some(second()?)),
        "UVERBS_ATTR_PTR_OUT" => (Kind::PtrOut, Some(second()?)),
        "UVERBS_ATTR_CONST_IN" => (Kind::ConstIn, Some(second()?)),
        "UVERBS_ATTR_FLAGS_IN" => (Kind::FlagsIn, Some(second()?)),
        "UVERBS_ATTR_ENUM_IN" => (Kind::EnumIn, Some(second()?)),
        "UVERBS_ATTR_UMEM" => (Kind::Umem, Some("struct ib_uverbs_buffer_desc".to_owned())),
        "UVERBS_ATTR_IDR" => (Kind::Idr, None),
        "UVERBS_ATTR_FD" => (Kind::Fd, None),
        "UVERBS_ATTR_IDRS_ARR" => (Kind::IdrsArray, None),
        "UVERBS_ATTR_RAW_FD" => (Kind::RawFd, None),
        other => return Err(unknown(other)),
    };
    let object = match kind {
        Kind::Idr | Kind::Fd | Kind::IdrsArray => {
            let access = arg(call, 2, place)?;
            let access = match access.as_str() {
                "UVERBS_ACCESS_READ" => Access::Read,
                "UVERBS_ACCESS_WRITE" => Access::Write,
                "UVERBS_ACCESS_NEW" => Access::New,
                "UVERBS_ACCESS_DESTROY" => Access::Destroy,
                other => return Err(unknown(other)),
            };
            Some((second()?, access))
        }
        _ => None,
    };
    let mut code = text.to_owned();
    let elems = match kind {
        Kind::EnumIn => {
            let array = second()?;
            let inside = source.array(&array).ok_or_else(|| unknown(&array))?;
            // Two drivers may use one name.
            let own = format!("{}_{array}", place.provider);
            code = code.replacen(&array, &own, 1);
            Some((own, inside))
        }
        _ => None,
    };
    let used = [Some(&code), elems.as_ref().map(|(_, inside)| inside)];
    let used = used.into_iter().flatten().flat_map(|text| text::names(text));
    let used: Vec<&str> = used.map(|(_, name)| name).collect();
    let own = source
        .defines
        .iter()
        .filter(|define| text::names(define).next().is_some_and(|(_, name)| used.contains(&name)));
    let defines = own.cloned().collect();
    Ok(AttrDecl { name, kind, ctype, object, code, index: 0, elems, defines })
}
