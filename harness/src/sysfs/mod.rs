//! `verbgate sysfs`: the /sys of sandboxes, recorded, compared, explained and served.

mod args;
mod serve;
mod show;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use anyhow::anyhow;
use args::GrantArgs;
pub(crate) use args::SysfsCommand;
use args::SysfsHostArgs;
use verbgate_host::output::print;
use verbgate_sysfs::AllGids;
use verbgate_sysfs::Snapshot;
use verbgate_sysfs::collect::SYSFS_ROOT;
use verbgate_sysfs::contents::Contents;
use verbgate_sysfs::contents::Source;
use verbgate_sysfs::contents::Tables;
use verbgate_sysfs::diff;
use verbgate_sysfs::materialise;
use verbgate_sysfs::record::Detail;
use verbgate_sysfs::record::record;
use verbgate_sysfs::select;
use verbgate_sysfs::select::Grant;
use verbgate_sysfs::select::Names;
use verbgate_sysfs::select::Selection;
use verbgate_sysfs::tree;

use crate::failure::Failure;
use crate::output::print_json;

/// No snapshot of a machine is larger.
const SNAPSHOT_MAX: u64 = 256 << 20;

/// Runs one of the commands.
pub(crate) fn run(command: &SysfsCommand) -> Result<u8, Failure> {
    dispatch(command).map_err(Failure::of_tool)
}

fn dispatch(command: &SysfsCommand) -> Result<u8, anyhow::Error> {
    match command {
        SysfsCommand::Snapshot(args) => {
            let snapshot = of_host(args.root.as_deref().unwrap_or(Path::new(SYSFS_ROOT)))?;
            write(&snapshot, args.output.as_deref())
        }
        SysfsCommand::Show(args) => {
            let snapshot = of(&args.host)?;
            if args.json {
                print_json(&show::json(&snapshot))?;
            } else {
                print(&show::text(&snapshot))?;
            }
            Ok(0)
        }
        SysfsCommand::Diff(args) => {
            let changes = diff::diff(&load(&args.before)?, &load(&args.after)?);
            if args.json {
                print_json(&changes)?;
            } else {
                print(&changes.iter().map(|change| format!("{change}\n")).collect::<String>())?;
            }
            // As diff(1): 1 says that there are differences.
            Ok(u8::from(!changes.is_empty()))
        }
        SysfsCommand::Select(args) => {
            let snapshot = of(&args.host)?;
            let selection = selected(&snapshot, &args.grant)?;
            write(&snapshot.reduced(&selection), args.output.as_deref())
        }
        SysfsCommand::Explain(args) => {
            let snapshot = of(&args.host)?;
            let selection = selected(&snapshot, &args.grant)?;
            if args.json {
                print_json(&selection)?;
                return Ok(0);
            }
            explain(&selection, &args.names)
        }
        SysfsCommand::Materialise(args) => {
            let snapshot = of(&args.host)?;
            let tree = tree::build(&snapshot, &selected(&snapshot, &args.grant)?);
            let contents = Contents { tree: &tree, source: &Source::Recorded, view: &AllGids };
            let written = materialise::materialise(&contents, &args.dir)?;
            log::info!(
                "{} files recorded; {} files that cannot be read are left out",
                written.files,
                written.failing
            );
            Ok(0)
        }
        SysfsCommand::Serve(args) => serve::run(args),
    }
}

/// The host that is meant: a snapshot of it, or one made now.
fn of(args: &SysfsHostArgs) -> Result<Snapshot, anyhow::Error> {
    match (&args.snapshot, &args.root) {
        (Some(file), _) => load(file),
        (None, Some(root)) => of_host(root),
        (None, None) => of_host(Path::new(SYSFS_ROOT)),
    }
}

fn of_host(root: &Path) -> Result<Snapshot, anyhow::Error> {
    Ok(record(root, Detail::Values)?)
}

fn load(file: &Path) -> Result<Snapshot, anyhow::Error> {
    let text =
        read(file).map_err(|e| anyhow!("cannot read the snapshot {}: {e}", file.display()))?;
    Snapshot::from_json(&text)
        .map_err(|e| anyhow!("the snapshot {} is refused: {e}", file.display()))
}

fn read(file: &Path) -> io::Result<String> {
    let size = fs::metadata(file)?.len();
    if size > SNAPSHOT_MAX {
        return Err(io::Error::other(format!("the file has {size} bytes, more than any snapshot")));
    }
    fs::read_to_string(file)
}

fn write(snapshot: &Snapshot, output: Option<&Path>) -> Result<u8, anyhow::Error> {
    let text = snapshot.to_json()? + "\n";
    match output {
        None => {
            print(&text)?;
            Ok(0)
        }
        Some(path) => match fs::write(path, text) {
            Ok(()) => Ok(0),
            Err(e) => Err(anyhow!("cannot write the snapshot to {}: {e}", path.display())),
        },
    }
}

/// The grant of the options; everything by default.
fn grant(snapshot: &Snapshot, args: &GrantArgs) -> Result<Grant, anyhow::Error> {
    let rdma: BTreeSet<&str> = snapshot
        .rdma
        .iter()
        .map(|r| &*r.name)
        .chain(snapshot.verbs.iter().map(|v| &*v.name))
        .collect();
    let gpus: BTreeSet<&str> = snapshot.devices.iter().map(|d| d.name()).collect();
    Ok(Grant {
        rdma: named(&args.devices, &rdma, "no RDMA device is called")?,
        gpus: if args.no_gpus {
            Names::Only(BTreeSet::new())
        } else {
            named(&args.gpus, &gpus, "no PCI function has the address")?
        },
    })
}

fn named(names: &[String], have: &BTreeSet<&str>, what: &str) -> Result<Names, anyhow::Error> {
    if names.is_empty() {
        return Ok(Names::All);
    }
    match names.iter().find(|name| !have.contains(&***name)) {
        None => Ok(Names::Only(names.iter().cloned().collect())),
        Some(unknown) => {
            Err(anyhow!("{what} {unknown:?}; for the names that exist, see: verbgate sysfs show"))
        }
    }
}

fn selected(snapshot: &Snapshot, args: &GrantArgs) -> Result<Selection, anyhow::Error> {
    let tables = Tables { source: &Source::Recorded, view: &AllGids };
    Ok(select::select(snapshot, &grant(snapshot, args)?, &tables))
}

fn explain(selection: &Selection, names: &[String]) -> Result<u8, anyhow::Error> {
    let all = selection.rdma.iter().chain(&selection.netdevs).chain(&selection.devices);
    // A PCI function by its address, whatever its path.
    let all: Vec<(&str, String)> =
        all.map(|(path, why)| (path.rsplit('/').next().unwrap_or(path), why.to_string())).collect();
    for name in names {
        if !all.iter().any(|(known, _)| known == name) {
            return Err(anyhow!(
                "no device is called {name:?}; give an RDMA device, an interface or a PCI address \
                 as in 0000:0c:00.0"
            ));
        }
    }
    let asked = |name: &str| names.is_empty() || names.iter().any(|n| n == name);
    let lines = all.iter().filter(|(name, _)| asked(name));
    print(&lines.map(|(name, why)| format!("{name} {why}\n")).collect::<String>())?;
    Ok(0)
}

/// The file of a snapshot, or the root of a sysfs, for messages.
fn place(args: &SysfsHostArgs) -> PathBuf {
    args.snapshot.clone().or_else(|| args.root.clone()).unwrap_or_else(|| SYSFS_ROOT.into())
}
