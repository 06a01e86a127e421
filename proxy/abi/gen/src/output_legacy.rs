//! The Rust text: legacy commands and private inputs.

use std::fmt::Write as _;

use anyhow::Context as _;
use anyhow::bail;
use anyhow::ensure;

use crate::annotate;
use crate::input::Legacy;
use crate::input::Tables;
use crate::input::Uhw;
use crate::output::access;
use crate::output::kernels;
use crate::output::object_ref;
use crate::output::static_name;

pub(crate) fn legacy(out: &mut String, tables: &Tables) -> anyhow::Result<()> {
    writeln!(out, "\npub(crate) static LEGACY: &[LegacySpec] = &[")?;
    for command in &tables.legacy_write_commands {
        write_legacy(out, tables, command).with_context(|| command.name.clone())?;
    }
    writeln!(out, "];")?;
    Ok(())
}

fn short_name(name: &str) -> anyhow::Result<String> {
    if let Some(short) = name.strip_prefix("IB_USER_VERBS_EX_CMD_") {
        return Ok(format!("EX_{short}"));
    }
    Ok(name.strip_prefix("IB_USER_VERBS_CMD_").context("prefix")?.to_owned())
}

fn write_legacy(out: &mut String, tables: &Tables, cmd: &Legacy) -> anyhow::Result<()> {
    let (req, req_spec) = tables.struct_of(&cmd.req_struct)?;
    ensure!(req_spec.size == cmd.req_struct_size, "request size");
    let resp = match &cmd.resp_struct {
        Some(name) => {
            let (name, spec) = tables.struct_of(name)?;
            ensure!(spec.size == cmd.resp_struct_size, "response size");
            format!("Some(&{})", static_name(name))
        }
        None => "None".into(),
    };
    ensure!(cmd.min_sizes_enforced_on_invoke_write != cmd.extended, "enforcement");
    ensure!(cmd.trailing_in.is_some() == annotate::trailing(&cmd.name).is_some(), "trailing");
    ensure!(
        cmd.write_cmd_attr == u64::from(cmd.number) | if cmd.extended { 0x8000_0000 } else { 0 },
        "number"
    );
    writeln!(
        out,
        "    LegacySpec {{ name: {:?}, short_name: {:?}, number: {}, extended: {}, write_cmd: {:#x}, object: {}, req: &{}, req_min: {}, resp: {resp}, resp_min: {}, min_enforced: {}, takes_uhw: {}, has_resp: {}, creates_ucontext: {}, kernels: {}, trailing_in: Trailing::{}, trailing_wcs: {}, cap: {:?},",
        cmd.name,
        short_name(&cmd.name)?,
        cmd.number,
        cmd.extended,
        cmd.write_cmd_attr,
        object_ref(tables, &cmd.object)?,
        static_name(req),
        cmd.req_min_declared,
        cmd.resp_min_declared,
        cmd.min_sizes_enforced_on_invoke_write,
        cmd.takes_uhw,
        cmd.response_pointer_field.is_some(),
        cmd.creates_ucontext,
        kernels(&cmd.present_in)?,
        annotate::trailing(&cmd.name).unwrap_or("None"),
        cmd.trailing_out.is_some(),
        cmd.cap.as_deref().unwrap_or(""),
    )?;
    write_handles(out, tables, cmd)?;
    write_fds(out, tables, cmd)?;
    write_vas(out, tables, cmd)?;
    writeln!(out, "    }},")?;
    Ok(())
}

fn tests(tables: &Tables, cmd: &Legacy, tests: &[annotate::Test]) -> anyhow::Result<String> {
    let mut text = String::new();
    for (field, op, value) in tests {
        let (offset, size) = tables.field(&cmd.req_struct, field)?;
        ensure!(size <= 8, "condition on a long field {field}");
        write!(
            text,
            "Test {{ field: {field:?}, offset: {offset}, size: {size}, op: TestOp::{op}, value: {value} }}, "
        )?;
    }
    Ok(format!("&[{}]", text.trim_end_matches(", ")))
}

/// Splits `resp.` off a field's path and finds its place.
fn place<'a>(
    tables: &Tables,
    cmd: &Legacy,
    field: &'a str,
) -> anyhow::Result<(&'a str, u16, bool)> {
    let (path, in_resp) = field.strip_prefix("resp.").map_or((field, false), |path| (path, true));
    let structure = if in_resp {
        cmd.resp_struct.as_deref().context("a field of no response")?
    } else {
        &cmd.req_struct
    };
    let (offset, size) = tables.field(structure, path)?;
    ensure!(size == 4, "{field} is not 32 bits");
    Ok((path, offset, in_resp))
}

fn write_handles(out: &mut String, tables: &Tables, cmd: &Legacy) -> anyhow::Result<()> {
    if cmd.handles.is_empty() {
        writeln!(out, "        handles: &[],")?;
        return Ok(());
    }
    writeln!(out, "        handles: &[")?;
    for handle in &cmd.handles {
        let (path, offset, in_resp) = place(tables, cmd, &handle.field)?;
        let always: [annotate::Alternative; 1] = [(&handle.object, &[])];
        let alternatives = annotate::handle_when(&cmd.name, &handle.field);
        ensure!(
            handle.when.is_none() || alternatives.is_some(),
            "{path}: condition {:?} is not annotated",
            handle.when
        );
        for (object, when) in alternatives.unwrap_or(&always) {
            writeln!(
                out,
                "            HandleField {{ path: {path:?}, offset: {offset}, in_resp: {in_resp}, object: {}, access: {}, when: {} }},",
                object_ref(tables, object)?,
                access(&handle.access)?,
                tests(tables, cmd, when)?,
            )?;
        }
    }
    writeln!(out, "        ],")?;
    Ok(())
}

fn write_fds(out: &mut String, tables: &Tables, cmd: &Legacy) -> anyhow::Result<()> {
    if cmd.fds.is_empty() {
        writeln!(out, "        fds: &[],")?;
        return Ok(());
    }
    writeln!(out, "        fds: &[")?;
    for fd in &cmd.fds {
        let (path, offset, in_resp) = place(tables, cmd, &fd.field)?;
        ensure!((fd.dir == "new") == in_resp, "{path}: direction");
        let object = match tables.object(&fd.object) {
            Ok(object) => format!("Some(ids::{})", object.object),
            Err(_) if fd.object.starts_with("any inode") => "None".into(),
            Err(error) => return Err(error),
        };
        let none = match (fd.none, fd.signed) {
            (None, _) => "Never",
            (Some(-1), true) => "Negative",
            (Some(-1), false) => "MinusOne",
            other => bail!("{path}: none {other:?}"),
        };
        writeln!(
            out,
            "            FdField {{ path: {path:?}, offset: {offset}, in_resp: {in_resp}, object: {object}, none: NoFd::{none} }},",
        )?;
    }
    writeln!(out, "        ],")?;
    Ok(())
}

fn write_vas(out: &mut String, tables: &Tables, cmd: &Legacy) -> anyhow::Result<()> {
    if cmd.user_vas.is_empty() {
        writeln!(out, "        user_vas: &[],")?;
        return Ok(());
    }
    writeln!(out, "        user_vas: &[")?;
    for va in &cmd.user_vas {
        let (addr, addr_size) = tables.field(&cmd.req_struct, &va.field)?;
        let (len, len_size) = tables.field(&cmd.req_struct, &va.length_field)?;
        ensure!((addr_size, len_size) == (8, 8), "{}: not 64 bits", va.field);
        let when = annotate::va_when(&cmd.name, &va.field);
        ensure!(va.when.is_some() == when.is_some(), "{}: condition", va.field);
        writeln!(
            out,
            "            VaField {{ addr: {addr}, len: {len}, when: {} }},",
            tests(tables, cmd, when.unwrap_or(&[]))?,
        )?;
    }
    writeln!(out, "        ],")?;
    Ok(())
}

pub(crate) fn uhw(out: &mut String, tables: &Tables) -> anyhow::Result<()> {
    writeln!(out, "\npub(crate) static UHW: &[UhwSpec] = &[")?;
    for spec in tables.driver_uhw.iter().filter(|spec| spec.r#struct.is_some()) {
        write_uhw(out, spec)?;
    }
    writeln!(out, "];")?;
    Ok(())
}

fn write_uhw(out: &mut String, spec: &Uhw) -> anyhow::Result<()> {
    let drivers: Vec<String> =
        annotate::uhw_drivers(&spec.driver).iter().map(|d| format!("DriverId::{d}")).collect();
    // Only the legacy names, without EX_: look-ups map the ioctl methods' names to them.
    let mut operations: Vec<&str> = spec
        .operation
        .split('/')
        .map(|op| op.split(" (").next().unwrap_or(op).trim_start_matches("EX_"))
        .filter(|op| !op.ends_with("_CREATE") && *op != "CREATE_XSRQ")
        .collect();
    operations.dedup();
    ensure!(!operations.is_empty(), "{}: no operation", spec.operation);
    writeln!(
        out,
        "    UhwSpec {{ drivers: &[{}], operations: &{operations:?}, name: {:?}, size: {}, length_rule: {:?}, fields: &[",
        drivers.join(", "),
        spec.r#struct.as_deref().unwrap_or_default(),
        spec.size,
        spec.length_rule,
    )?;
    for field in &spec.fields {
        writeln!(
            out,
            "        UhwField {{ name: {:?}, offset: {}, size: {}, role: UhwRole::{}, note: {:?} }},",
            field.name,
            field.offset,
            field.size,
            annotate::uhw_role(&field.role),
            field.role,
        )?;
    }
    writeln!(out, "    ] }},")?;
    Ok(())
}
