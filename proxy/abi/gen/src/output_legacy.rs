//! The Rust text: legacy commands and private inputs.

use std::fmt::Write as _;

use anyhow::Context as _;
use anyhow::ensure;

use crate::annotations::Annotations;
use crate::annotations::Command;
use crate::annotations::Comparison;
use crate::annotations::NoFd;
use crate::annotations::Private;
use crate::annotations::Test;
use crate::annotations::Trailing;
use crate::facts::Facts;
use crate::facts::Legacy;
use crate::output::kernels;
use crate::output::object_ref;
use crate::output::static_name;

pub(crate) fn legacy(out: &mut String, facts: &Facts, notes: &Annotations) -> anyhow::Result<()> {
    writeln!(out, "\npub(crate) static LEGACY: &[LegacySpec] = &[")?;
    for command in &facts.legacy_write_commands {
        if notes.left_out.contains_key(&command.name) {
            continue;
        }
        let note = notes.commands.get(&command.name).context("no annotation")?;
        write_legacy(out, facts, command, note).with_context(|| command.name.clone())?;
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

fn write_legacy(
    out: &mut String,
    facts: &Facts,
    cmd: &Legacy,
    note: &Command,
) -> anyhow::Result<()> {
    let (req, req_spec) = facts.struct_of(&cmd.req_struct)?;
    ensure!(req_spec.size == cmd.req_struct_size, "request size");
    let resp = match &cmd.resp_struct {
        Some(name) => {
            let (name, spec) = facts.struct_of(name)?;
            ensure!(spec.size == cmd.resp_struct_size, "response size");
            format!("Some(&{})", static_name(name))
        }
        None => "None".into(),
    };
    ensure!(
        cmd.write_cmd_attr == u64::from(cmd.number) | if cmd.extended { 0x8000_0000 } else { 0 },
        "number"
    );
    let trailing = match note.trailing_in {
        None => "None",
        Some(Trailing::SendWrs) => "SendWrs",
        Some(Trailing::RecvWrs) => "RecvWrs",
        Some(Trailing::FlowSpecs) => "FlowSpecs",
        Some(Trailing::WqHandles) => "WqHandles",
    };
    writeln!(
        out,
        "    LegacySpec {{ name: {:?}, short_name: {:?}, number: {}, extended: {}, write_cmd: {:#x}, object: {}, req: &{}, req_min: {}, resp: {resp}, resp_min: {}, min_enforced: {}, takes_uhw: {}, has_resp: {}, creates_ucontext: {}, kernels: {}, trailing_in: Trailing::{trailing}, trailing_wcs: {}, cap: {:?},",
        cmd.name,
        short_name(&cmd.name)?,
        cmd.number,
        cmd.extended,
        cmd.write_cmd_attr,
        object_ref(facts, &cmd.object)?,
        static_name(req),
        cmd.req_min_declared,
        cmd.resp_min_declared,
        // The kernel lets an extended request be shorter (ib_uverbs_write: not with INVOKE_WRITE).
        !cmd.extended,
        cmd.takes_uhw,
        cmd.has_response_pointer,
        note.creates_ucontext,
        kernels(facts, &cmd.present_in)?,
        note.trailing_completions,
        note.capability.as_deref().unwrap_or(""),
    )?;
    write_handles(out, facts, cmd, note)?;
    write_fds(out, facts, cmd, note)?;
    write_vas(out, facts, cmd, note)?;
    writeln!(out, "    }},")?;
    Ok(())
}

fn tests(facts: &Facts, cmd: &Legacy, tests: &[Test]) -> anyhow::Result<String> {
    let mut text = String::new();
    for Test { field, is, value } in tests {
        let (offset, size) = facts.field(&cmd.req_struct, field)?;
        ensure!(size <= 8, "condition on a long field {field}");
        let op = match is {
            Comparison::Eq => "Eq",
            Comparison::Ne => "Ne",
            Comparison::AnyBit => "AnyBit",
            Comparison::NoBit => "NoBit",
        };
        write!(
            text,
            "Test {{ field: {field:?}, offset: {offset}, size: {size}, op: TestOp::{op}, value: {value} }}, "
        )?;
    }
    Ok(format!("&[{}]", text.trim_end_matches(", ")))
}

/// Splits `resp.` off a field's path and finds its place.
fn place<'a>(facts: &Facts, cmd: &Legacy, field: &'a str) -> anyhow::Result<(&'a str, u16, bool)> {
    let (path, in_resp) = field.strip_prefix("resp.").map_or((field, false), |path| (path, true));
    let structure = if in_resp {
        cmd.resp_struct.as_deref().context("a field of no response")?
    } else {
        &cmd.req_struct
    };
    let (offset, size) = facts.field(structure, path)?;
    ensure!(size == 4, "{field} is not 32 bits");
    Ok((path, offset, in_resp))
}

fn write_handles(
    out: &mut String,
    facts: &Facts,
    cmd: &Legacy,
    note: &Command,
) -> anyhow::Result<()> {
    if note.handles.is_empty() {
        writeln!(out, "        handles: &[],")?;
        return Ok(());
    }
    writeln!(out, "        handles: &[")?;
    for handle in &note.handles {
        let (path, offset, in_resp) = place(facts, cmd, &handle.field)?;
        writeln!(
            out,
            "            HandleField {{ path: {path:?}, offset: {offset}, in_resp: {in_resp}, object: {}, access: Access::{:?}, when: {} }},",
            object_ref(facts, &handle.object)?,
            handle.access,
            tests(facts, cmd, &handle.when)?,
        )?;
    }
    writeln!(out, "        ],")?;
    Ok(())
}

fn write_fds(out: &mut String, facts: &Facts, cmd: &Legacy, note: &Command) -> anyhow::Result<()> {
    if note.fds.is_empty() {
        writeln!(out, "        fds: &[],")?;
        return Ok(());
    }
    writeln!(out, "        fds: &[")?;
    for fd in &note.fds {
        let (path, offset, in_resp) = place(facts, cmd, &fd.field)?;
        let object = match &fd.object {
            Some(name) => format!("Some(ids::{})", facts.object(name)?.object),
            None => "None".into(),
        };
        let none = match fd.none {
            NoFd::Never => "Never",
            NoFd::Negative => "Negative",
            NoFd::MinusOne => "MinusOne",
        };
        writeln!(
            out,
            "            FdField {{ path: {path:?}, offset: {offset}, in_resp: {in_resp}, object: {object}, none: NoFd::{none} }},",
        )?;
    }
    writeln!(out, "        ],")?;
    Ok(())
}

fn write_vas(out: &mut String, facts: &Facts, cmd: &Legacy, note: &Command) -> anyhow::Result<()> {
    if note.memory.is_empty() {
        writeln!(out, "        user_vas: &[],")?;
        return Ok(());
    }
    writeln!(out, "        user_vas: &[")?;
    for memory in &note.memory {
        let (addr, addr_size) = facts.field(&cmd.req_struct, &memory.address)?;
        let (len, len_size) = facts.field(&cmd.req_struct, &memory.length)?;
        ensure!((addr_size, len_size) == (8, 8), "{}: not 64 bits", memory.address);
        writeln!(
            out,
            "            VaField {{ addr: {addr}, len: {len}, when: {} }},",
            tests(facts, cmd, &memory.when)?,
        )?;
    }
    writeln!(out, "        ],")?;
    Ok(())
}

pub(crate) fn uhw(out: &mut String, facts: &Facts, notes: &Annotations) -> anyhow::Result<()> {
    writeln!(out, "\npub(crate) static UHW: &[UhwSpec] = &[")?;
    for spec in &notes.private {
        write_uhw(out, facts, spec).with_context(|| spec.structure.clone())?;
    }
    writeln!(out, "];")?;
    Ok(())
}

fn write_uhw(out: &mut String, facts: &Facts, spec: &Private) -> anyhow::Result<()> {
    let drivers: Vec<String> = spec.drivers.iter().map(|d| format!("DriverId::{d}")).collect();
    // Only the legacy names, without EX_: look-ups map the ioctl methods' names to them.
    ensure!(!spec.operations.is_empty(), "no operation");
    let size = match spec.size {
        Some(size) => size,
        None => facts.private_structs.get(&spec.structure).context("no such structure")?.size,
    };
    writeln!(
        out,
        "    UhwSpec {{ drivers: &[{}], operations: &{:?}, name: {:?}, size: {size}, length_rule: {:?}, fields: &[",
        drivers.join(", "),
        spec.operations,
        spec.structure,
        spec.length_rule,
    )?;
    for field in &spec.fields {
        let [offset, size] = match field.at {
            Some(at) => at,
            None => facts.private_field(&spec.structure, &field.name)?,
        };
        let (role, note) = field.role.names();
        let note = field.note.as_deref().unwrap_or(note);
        writeln!(
            out,
            "        UhwField {{ name: {:?}, offset: {offset}, size: {size}, role: UhwRole::{role}, note: {note:?} }},",
            field.name,
        )?;
    }
    writeln!(out, "    ], plain: &[")?;
    for name in &spec.plain {
        let [offset, size] = facts.private_field(&spec.structure, name)?;
        writeln!(
            out,
            "        UhwField {{ name: {name:?}, offset: {offset}, size: {size}, role: UhwRole::Plain, note: \"\" }},",
        )?;
    }
    writeln!(out, "    ] }},")?;
    Ok(())
}
