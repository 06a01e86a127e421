//! One kernel's facts.

use std::collections::BTreeMap;
use std::path::Path;

use verbgate_abi_gen::facts::Class;
use verbgate_abi_gen::facts::Facts;
use verbgate_abi_gen::facts::Legacy;
use verbgate_abi_gen::facts::Method;
use verbgate_abi_gen::facts::Object;
use verbgate_abi_gen::facts::Wire;

use crate::Error;
use crate::compile::Program;
use crate::declare::AttrDecl;
use crate::declare::Declarations;
use crate::declare::Place;
use crate::layout;
use crate::legacy;
use crate::legacy::CommandDecl;
use crate::program;
use crate::small;
use crate::tree::Tree;
use crate::tree::UAPI;

/// The header of write(2)'s structures.
const LEGACY_HEADER: &str = "include/uapi/rdma/ib_user_verbs.h";
/// The bit of `UVERBS_ATTR_WRITE_CMD` that says extended (`IB_USER_VERBS_CMD_FLAG_EXTENDED`).
const EXTENDED: u64 = 0x8000_0000;

/// Reads one kernel's source.
///
/// # Errors
///
/// The folder holds no kernel's source, the source declares something in a way that is not known
/// here, or there is no C compiler.
pub fn extract(root: &Path) -> Result<Facts, Error> {
    let tree = Tree::open(root)?;
    let mut declarations = Declarations::default();
    for source in tree.declarations()? {
        declarations.read(&source)?;
    }
    let commands = legacy::read(&tree.source(legacy::FILE)?)?;
    let mut program = Program::new(program::head(&tree)?);
    let asked = Asked::new(&tree, &declarations, &commands, &mut program)?;

    let include = tempfile::tempdir().map_err(Error::Scratch)?;
    let headers = std::path::absolute(tree.path(UAPI)).map_err(Error::Scratch)?;
    std::os::unix::fs::symlink(headers, include.path().join("rdma")).map_err(Error::Scratch)?;
    let values = program.run(include.path())?;
    asked.facts(&tree, commands, &values)
}

/// A method, put together from all places that say something about it.
#[derive(Debug)]
struct Assembled {
    object: String,
    name: String,
    provider: String,
    attrs: Vec<(AttrDecl, Place)>,
    places: Vec<Place>,
}

/// What the program will print, and where.
#[derive(Debug)]
struct Asked {
    wire: usize,
    /// The places of the numbers of objects' and methods' names.
    ids: BTreeMap<String, usize>,
    objects: Vec<(String, String, Class, Place)>,
    methods: Vec<(Assembled, Vec<program::Pending>)>,
    commands: usize,
    legacy_structs: BTreeMap<String, layout::Pending>,
    private_structs: BTreeMap<String, layout::Pending>,
}

/// What is asked of the request's own structures, in this order.
const WIRE: &[&str] = &[
    "RDMA_VERBS_IOCTL",
    "sizeof(struct ib_uverbs_ioctl_hdr)",
    "sizeof(struct ib_uverbs_attr)",
    "UVERBS_ATTR_F_MANDATORY",
    "UVERBS_ATTR_F_VALID_OUTPUT",
];
/// How many numbers are asked of a command.
const OF_COMMAND: usize = 7;

impl Asked {
    fn new(
        tree: &Tree,
        declarations: &Declarations,
        commands: &[CommandDecl],
        program: &mut Program,
    ) -> Result<Self, Error> {
        let wire =
            program.value(WIRE.first().unwrap_or(&""), (*WIRE.first().unwrap_or(&"0")).to_owned());
        for expr in WIRE.iter().skip(1) {
            program.value(expr, (*expr).to_owned());
        }
        let objects = objects(declarations)?;
        let methods = assemble(declarations)?;
        let mut ids = BTreeMap::new();
        let names = objects.iter().map(|(name, ..)| name).chain(methods.iter().map(|m| &m.name));
        for name in names {
            ids.entry(name.clone()).or_insert_with(|| program.value(name, name.clone()));
        }
        let mut unique = 0_usize;
        let methods = methods.into_iter().map(|method| {
            let mut pending = Vec::new();
            for (attr, place) in &method.attrs {
                pending.push(program::ask(attr, place, unique, program));
                unique = unique.saturating_add(1);
            }
            (method, pending)
        });
        let methods = methods.collect();
        let commands = ask_commands(commands, program);
        let legacy_structs = layout::ask(&tree.source(LEGACY_HEADER)?, false, program)?;
        let mut private_structs = BTreeMap::new();
        for header in private_headers(tree)? {
            private_structs.extend(layout::ask(&tree.source(&header)?, true, program)?);
        }
        Ok(Self { wire, ids, objects, methods, commands, legacy_structs, private_structs })
    }

    fn facts(
        self,
        tree: &Tree,
        commands: Vec<CommandDecl>,
        values: &[u64],
    ) -> Result<Facts, Error> {
        let series = &tree.kernel.series;
        let id =
            |name: &str| small::<u16>(values, self.ids.get(name).copied().unwrap_or(usize::MAX));
        let wire = |at: usize| small::<u16>(values, self.wire.saturating_add(at));
        let ioctl: u32 = small(values, self.wire)?;
        let mut facts = Facts {
            kernels: vec![tree.kernel.clone()],
            wire: Wire {
                ioctl: format!("{ioctl:#x}"),
                header_size: wire(1)?,
                attr_size: wire(2)?,
                flags: [
                    ("UVERBS_ATTR_F_MANDATORY", wire(3)?),
                    ("UVERBS_ATTR_F_VALID_OUTPUT", wire(4)?),
                ]
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            },
            ..Facts::default()
        };
        for (object, r#type, class, place) in self.objects {
            facts.objects.push(Object {
                object_id: id(&object)?,
                object,
                first_seen: series.clone(),
                present_in: vec![series.clone()],
                r#type,
                class,
                file: place.file.display().to_string(),
                provider: place.provider,
            });
        }
        for (method, attrs) in self.methods {
            let attrs = attrs.into_iter().map(|one| program::fill(one, series, values));
            let attrs = attrs.collect::<Result<Vec<_>, Error>>()?;
            let places = method.places.iter().map(Place::to_string).collect();
            facts.methods.push(Method {
                object_id: id(&method.object)?,
                object: method.object,
                method_id: id(&method.name)?,
                method: method.name,
                provider: method.provider,
                first_seen: series.clone(),
                present_in: vec![series.clone()],
                source: BTreeMap::from([(series.clone(), places)]),
                has_uhw: attrs.iter().any(|attr| attr.is_udata),
                attrs,
            });
        }
        for (at, command) in commands.into_iter().enumerate() {
            let first = self.commands.saturating_add(at.saturating_mul(OF_COMMAND));
            facts.legacy_write_commands.push(command_facts(command, series, values, first)?);
        }
        facts.legacy_structs = layout::fill(self.legacy_structs, values)?;
        facts.private_structs = layout::fill(self.private_structs, values)?;
        Ok(facts)
    }
}

/// Headers of structures that go between a driver and its library.
fn private_headers(tree: &Tree) -> Result<Vec<String>, Error> {
    let mut headers = tree.headers()?;
    headers.retain(|name| name.ends_with("-abi.h") || name.ends_with("/rdma_user_rxe.h"));
    let more = program::MORE_HEADERS.iter().filter(|name| name.ends_with("_abi.h"));
    headers.extend(more.filter(|name| tree.path(name).exists()).map(|name| (*name).to_owned()));
    Ok(headers)
}

/// The objects, each once: where a declaration with a type and one that only adds methods are of
/// one name, the type's.
fn objects(declarations: &Declarations) -> Result<Vec<(String, String, Class, Place)>, Error> {
    let mut objects: Vec<(String, String, Class, Place)> = Vec::new();
    let declared = || declarations.objects.iter().filter(|object| object.declares);
    for object in declared() {
        let Some((r#type, class)) = &object.r#type else {
            continue;
        };
        if let Some((name, .., first)) = objects.iter().find(|(name, ..)| *name == object.name) {
            let (first, second) = (first.to_string(), object.place.to_string());
            return Err(Error::Twice { name: name.clone(), first, second });
        }
        objects.push((object.name.clone(), r#type.clone(), *class, object.place.clone()));
    }
    for object in declared().filter(|object| object.r#type.is_none()) {
        if objects.iter().all(|(name, ..)| *name != object.name) {
            let r#type = "GLOBAL(no instances)".to_owned();
            objects.push((object.name.clone(), r#type, Class::None, object.place.clone()));
        }
    }
    for adds in declarations.objects.iter().filter(|object| !object.declares) {
        if objects.iter().all(|(name, ..)| *name != adds.name) {
            let (name, place) = (adds.name.clone(), adds.place.to_string());
            return Err(Error::NoDeclaration { name, place });
        }
    }
    Ok(objects)
}

/// The methods: those with a handler, each with its object and all attributes that are added to it.
fn assemble(declarations: &Declarations) -> Result<Vec<Assembled>, Error> {
    let mut methods: Vec<Assembled> = Vec::new();
    for method in declarations.methods.iter().filter(|method| method.declares) {
        // The names are static: a list means what is in its own file.
        let mut lists = declarations.objects.iter().filter(|object| {
            object.place.file == method.place.file && object.methods.contains(&method.name)
        });
        let Some(object) = lists.next() else {
            let (name, place) = (method.name.clone(), method.place.to_string());
            return Err(Error::NoObject { name, place });
        };
        methods.push(Assembled {
            object: object.name.clone(),
            name: method.name.clone(),
            provider: method.place.provider.clone(),
            attrs: method.attrs.iter().map(|attr| (attr.clone(), method.place.clone())).collect(),
            places: vec![method.place.clone()],
        });
    }
    for adds in declarations.methods.iter().filter(|method| !method.declares) {
        let found = methods.iter_mut().find(|method| {
            adds.object.as_deref() == Some(method.object.as_str()) && adds.name == method.name
        });
        let Some(method) = found else {
            let (name, place) = (adds.name.clone(), adds.place.to_string());
            return Err(Error::NoObject { name, place });
        };
        method.attrs.extend(adds.attrs.iter().map(|attr| (attr.clone(), adds.place.clone())));
        method.places.push(adds.place.clone());
    }
    // The core's own place first, whatever the order of folders.
    for method in &mut methods {
        method.places.sort_by_key(|place| place.provider != method.provider);
    }
    Ok(methods)
}

/// Puts the commands into the program; the place of the first number.
fn ask_commands(commands: &[CommandDecl], program: &mut Program) -> usize {
    let mut first = None;
    for (at, command) in commands.iter().enumerate() {
        let what = &command.name;
        program.declare(
            what,
            format!("static const struct uapi_definition w{at}[] = {{ {} }};", command.code),
        );
        let size = |of: Option<&str>| of.map_or("0".to_owned(), |name| format!("sizeof({name})"));
        let fields = [
            format!("w{at}[0].write.command_num"),
            format!("w{at}[0].write.has_resp"),
            format!("w{at}[0].write.has_udata"),
            format!("w{at}[0].write.req_size"),
            format!("w{at}[0].write.resp_size"),
            size(Some(&command.req)),
            size(command.resp.as_deref()),
        ];
        for expr in fields {
            let at = program.value(what, expr);
            first.get_or_insert(at);
        }
    }
    first.unwrap_or_default()
}

fn command_facts(
    command: CommandDecl,
    series: &str,
    values: &[u64],
    first: usize,
) -> Result<Legacy, Error> {
    let number = |at: usize| small::<u16>(values, first.saturating_add(at));
    let has_resp = number(1)? != 0;
    let code: u8 = small(values, first)?;
    Ok(Legacy {
        name: command.name,
        number: code,
        extended: command.extended,
        write_cmd_attr: u64::from(code) | if command.extended { EXTENDED } else { 0 },
        object: command.object,
        handler: command.handler,
        req_struct: command.req,
        req_struct_size: number(5)?,
        req_min_declared: number(3)?,
        resp_struct: command.resp,
        resp_struct_size: number(6)?,
        resp_min_declared: number(4)?,
        has_response_pointer: has_resp && !command.extended,
        takes_uhw: number(2)? != 0 || command.extended,
        needs_driver_ops: command.needs,
        present_in: vec![series.to_owned()],
    })
}
