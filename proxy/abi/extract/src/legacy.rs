//! The table of write(2)'s commands, `uverbs_def_write_intf`, as text.

use crate::Error;
use crate::text;
use crate::text::Call;
use crate::text::Source;

/// The file that lists the commands.
pub(crate) const FILE: &str = "drivers/infiniband/core/uverbs_cmd.c";

/// A command.
#[derive(Clone, Debug)]
pub(crate) struct CommandDecl {
    pub(crate) name: String,
    pub(crate) extended: bool,
    pub(crate) object: String,
    pub(crate) handler: String,
    pub(crate) req: String,
    pub(crate) resp: Option<String>,
    /// The call of the macro, without what drivers must have.
    pub(crate) code: String,
    pub(crate) needs: Vec<String>,
}

/// The commands of the file, in its order.
pub(crate) fn read(source: &Source) -> Result<Vec<CommandDecl>, Error> {
    let mut commands = Vec::new();
    for object in source.calls(|name| name == "DECLARE_UVERBS_OBJECT") {
        let place = crate::declare::place(&source.path, object.line).to_string();
        let unknown =
            |name: &str| Error::UnknownMacro { name: name.to_owned(), place: place.clone() };
        let (name, rest) = object.args.split_first().ok_or_else(|| unknown(&object.name))?;
        let calls = rest
            .iter()
            .map(|text| text::call(text).ok_or_else(|| unknown(text)))
            .collect::<Result<Vec<Call>, Error>>()?;
        let needed_by_all = calls.iter().filter(|call| call.name == "UAPI_DEF_OBJ_NEEDS_FN");
        let all: Vec<String> =
            needed_by_all.filter_map(|call| call.args.first().cloned()).collect();
        for call in &calls {
            match call.name.as_str() {
                "DECLARE_UVERBS_WRITE" => {
                    commands.push(command(call, name, &all, false, &unknown)?)
                }
                "DECLARE_UVERBS_WRITE_EX" => {
                    commands.push(command(call, name, &all, true, &unknown)?)
                }
                "UAPI_DEF_OBJ_NEEDS_FN" => {}
                other => return Err(unknown(other)),
            }
        }
    }
    Ok(commands)
}

fn command(
    call: &Call,
    object: &str,
    needed_by_all: &[String],
    extended: bool,
    unknown: &impl Fn(&str) -> Error,
) -> Result<CommandDecl, Error> {
    let [name, handler, description, rest @ ..] = call.args.as_slice() else {
        return Err(unknown(&call.name));
    };
    let form = text::call(description).ok_or_else(|| unknown(description))?;
    let (req, resp) = match (form.name.as_str(), form.args.as_slice()) {
        ("UAPI_DEF_WRITE_I" | "UAPI_DEF_WRITE_UDATA_I", [req])
        | ("UAPI_DEF_WRITE_I_EX", [req, _]) => (req, None),
        ("UAPI_DEF_WRITE_IO" | "UAPI_DEF_WRITE_UDATA_IO", [req, resp])
        | ("UAPI_DEF_WRITE_IO_EX", [req, _, resp, _]) => (req, Some(resp.clone())),
        _ => return Err(unknown(description)),
    };
    let mut needs = needed_by_all.to_vec();
    for text in rest {
        match text::call(text) {
            Some(call) if call.name == "UAPI_DEF_METHOD_NEEDS_FN" => needs.extend(call.args),
            _ => return Err(unknown(text)),
        }
    }
    Ok(CommandDecl {
        name: name.clone(),
        extended,
        object: object.to_owned(),
        handler: handler.clone(),
        req: req.clone(),
        resp,
        code: format!("{}({name}, 0, {description})", call.name),
        needs,
    })
}
