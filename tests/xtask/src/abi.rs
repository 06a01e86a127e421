//! `cargo xtask abi`: the kernel's tables, from kernels' sources to `proxy/abi/src/generated.rs`.
//!
//! ```text
//! kernels' sources --extract--> uverbs_methods.json --generate--> generated.rs
//!                               annotations.toml ------^
//! ```

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use clap::Subcommand;
use verbgate_abi_extract::diff::diff;
use verbgate_abi_gen::annotations::Annotations;
use verbgate_abi_gen::facts::Facts;
use verbgate_host::files;
use verbgate_lab::Progress;
use verbgate_lab::cached_source;
use verbgate_lab::fetch_source;

use crate::stream;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write the Rust tables anew from the facts and the annotations.
    Generate {
        /// Only say whether the tables are up to date.
        #[arg(long)]
        check: bool,
    },
    /// Write the facts anew from kernels' sources.
    Extract {
        /// The folder of a kernel's source, or the series of a fetched one; one for each kernel.
        #[arg(long = "kernel", required = true, value_name = "DIR|SERIES")]
        kernels: Vec<PathBuf>,
        /// The file to write. [default: proxy/abi/data/uverbs_methods.json]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Fetch a kernel's source into the lab's cache, and print its folder.
    Fetch {
        /// The series, such as 6.12.
        series: String,
    },
    /// Say what a kernel adds, removes and changes; exits with 1 if there is anything to say.
    Diff {
        /// The older kernel: a source's folder, a fetched series, or a file of facts.
        old: PathBuf,
        /// The newer kernel.
        new: PathBuf,
    },
    /// Compare the facts with the sources of all kernels that they name.
    Check {
        /// Fetch the sources that are missing: about 150 MB each.
        #[arg(long)]
        fetch: bool,
    },
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Generate { check } => generate(check)?,
        Command::Extract { kernels, out } => extract(&kernels, out)?,
        Command::Fetch { series } => {
            println!("{}", fetch_source(&series, &Progress::stderr())?.display());
        }
        Command::Diff { old, new } => {
            let differences = diff(&facts(&old)?, &facts(&new)?, &annotations()?);
            let mut differences: Vec<String> =
                differences.iter().map(ToString::to_string).collect();
            if !new.is_file() {
                differences.extend(calls_without_row(&source(&new)?)?);
            }
            differences.iter().for_each(|line| println!("{line}"));
            return Ok(ExitCode::from(u8::from(!differences.is_empty())));
        }
        Command::Check { fetch } => check(fetch)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A file of the tables.
fn file(path: &str) -> PathBuf {
    Path::new(stream::workspace()).join("proxy/abi").join(path)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn annotations() -> Result<Annotations> {
    Annotations::parse(&read(&file("data/annotations.toml"))?)
}

fn checked_in() -> Result<Facts> {
    let path = file("data/uverbs_methods.json");
    Facts::parse(&read(&path)?).with_context(|| path.display().to_string())
}

/// Writes the Rust tables; with `check`, only compares.
///
/// # Errors
///
/// The facts or the annotations cannot be read, or do not fit together; the tables cannot be
/// written; with `check`, the tables are not what would be written.
pub(crate) fn generate(check: bool) -> Result<()> {
    let (facts, notes) = (file("data/uverbs_methods.json"), file("data/annotations.toml"));
    let (facts, notes) = (read(&facts)?, read(&notes)?);
    annotated(&Facts::parse(&facts)?, &Annotations::parse(&notes)?)?;
    let tables = verbgate_abi_gen::generate(&facts, &notes)?;
    let out = file("src/generated.rs");
    if fs::read_to_string(&out).unwrap_or_default() == tables {
        return Ok(());
    }
    if check {
        bail!("{} is not up to date: run `cargo xtask abi generate`", out.display());
    }
    replace(&out, &tables)
}

/// A failed write must not leave half a table.
fn replace(path: &Path, text: &str) -> Result<()> {
    files::replace(path, text.as_bytes(), files::PUBLIC)
        .with_context(|| format!("cannot replace {}", path.display()))
}

/// The tables of a kernel's system calls: the file, the words of its second column that mean an ABI, and that ABI's column
/// in ours.
const SYSTEM_CALLS: [(&str, &[&str], usize); 4] = [
    ("arch/x86/entry/syscalls/syscall_64.tbl", &["common", "64"], 1),
    ("arch/x86/entry/syscalls/syscall_32.tbl", &["i386"], 2),
    // With the words of arch/arm64/kernel/Makefile.syscalls.
    ("scripts/syscall.tbl", &["common", "64", "renameat", "rlimit", "memfd_secret"], 3),
    ("arch/arm64/tools/syscall_32.tbl", &["common"], 4),
];

/// The system calls of a kernel that have no row in the sandbox's table, or another number: the sandbox refuses them.
fn calls_without_row(source: &Path) -> Result<Vec<String>> {
    let known = read(&Path::new(stream::workspace()).join("proxy/sys/src/seccomp/calls.txt"))?;
    let mut found = Vec::new();
    for (file, abis, column) in SYSTEM_CALLS {
        let path = source.join(file);
        // Tables of AArch64 and AArch32 exist since 6.11.
        if column > 2 && !path.exists() {
            continue;
        }
        for line in read(&path)?.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            // A number without an entry point is kept free.
            let [number, abi, name, entry, ..] = words[..] else { continue };
            if !abis.contains(&abi) || entry == "sys_ni_syscall" {
                continue;
            }
            let row = known.lines().find(|row| row.split_whitespace().next() == Some(name));
            let known = row.and_then(|row| row.split_whitespace().nth(column));
            if known != Some(number) {
                let has = known.unwrap_or("no row");
                found
                    .push(format!("system call {name} ({file}): {number}, and {has} in calls.txt"));
            }
        }
    }
    Ok(found)
}

/// The source that an argument means: a folder, or a series that has been fetched.
fn source(named: &Path) -> Result<PathBuf> {
    if named.is_dir() {
        return Ok(named.to_owned());
    }
    let series = named.display();
    match cached_source(&series.to_string())? {
        Some(source) => Ok(source),
        None => bail!(
            "{series} is neither a folder nor the series of a fetched source: run `cargo xtask abi fetch {series}`"
        ),
    }
}

/// The facts that an argument means: a file of facts, or a source.
fn facts(named: &Path) -> Result<Facts> {
    if named.is_file() {
        return Facts::parse(&read(named)?).with_context(|| named.display().to_string());
    }
    let source = source(named)?;
    verbgate_abi_extract::extract(&source).with_context(|| source.display().to_string())
}

fn merged(kernels: &[PathBuf]) -> Result<Facts> {
    let each = kernels.iter().map(|named| {
        let source = source(named)?;
        verbgate_abi_extract::extract(&source).with_context(|| source.display().to_string())
    });
    Ok(verbgate_abi_extract::merge(each.collect::<Result<_>>()?)?)
}

fn extract(kernels: &[PathBuf], out: Option<PathBuf>) -> Result<()> {
    let facts = merged(kernels)?;
    annotated(&facts, &annotations()?)?;
    let out = out.unwrap_or_else(|| file("data/uverbs_methods.json"));
    replace(&out, &verbgate_abi_extract::to_json(&facts)?)?;
    println!("{}: {}", out.display(), counts(&facts));
    Ok(())
}

/// What nobody has looked at must not come into the tables: nothing is written.
fn annotated(facts: &Facts, notes: &Annotations) -> Result<()> {
    let findings = verbgate_abi_gen::check(facts, notes);
    if findings.is_empty() {
        return Ok(());
    }
    for finding in &findings {
        eprintln!("{finding}");
    }
    let skeleton = verbgate_abi_gen::skeleton(facts, notes);
    if !skeleton.is_empty() {
        println!(
            "# For annotations.toml: for each ? read the handler. A section that is there already takes the lines.\n{}",
            skeleton.trim_start()
        );
    }
    bail!("{} annotations are missing or do not fit: nothing is written", findings.len());
}

/// How much there is, in a line.
fn counts(facts: &Facts) -> String {
    let attrs: usize = facts.methods.iter().map(|method| method.attrs.len()).sum();
    let kernels: Vec<&str> = facts.kernels.iter().map(|kernel| kernel.release.as_str()).collect();
    format!(
        "{} objects, {} methods, {attrs} attributes, {} commands, {} structures; Linux {}",
        facts.objects.len(),
        facts.methods.len(),
        facts.legacy_write_commands.len(),
        facts.legacy_structs.len() + facts.private_structs.len(),
        kernels.join(", "),
    )
}

/// Compares the checked-in facts with those of the kernels' sources.
fn check(fetch: bool) -> Result<()> {
    let known = checked_in()?;
    let mut sources = Vec::new();
    for kernel in &known.kernels {
        sources.push(match cached_source(&kernel.series)? {
            Some(source) => source,
            None if fetch => fetch_source(&kernel.series, &Progress::stderr())?,
            None => bail!(
                "the source of Linux {0} is not in the cache: run `cargo xtask abi check --fetch`, or `cargo xtask abi fetch {0}`",
                kernel.series
            ),
        });
    }
    let found = merged(&sources)?;
    for (known, found) in known.kernels.iter().zip(&found.kernels) {
        if known.release != found.release {
            println!(
                "Linux {}: made from {}, compared with {}",
                known.series, known.release, found.release
            );
        }
    }
    let differences = verbgate_abi_extract::diff::compare(&known, &found, &annotations()?);
    differences.iter().for_each(|line| println!("{line}"));
    if !differences.is_empty() {
        bail!("{} differences between the checked-in facts and the sources", differences.len());
    }
    println!("the same: {}", counts(&found));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sources are too large to fetch for a test: `cargo xtask abi check --fetch` does.
    #[test]
    fn the_facts_are_what_the_sources_say() {
        let known = checked_in().unwrap();
        let missing: Vec<&str> = known
            .kernels
            .iter()
            .map(|kernel| kernel.series.as_str())
            .filter(|series| !matches!(cached_source(series), Ok(Some(_))))
            .collect();
        if !missing.is_empty() {
            eprintln!(
                "SKIPPED: the sources of Linux {} are not in the cache: cargo xtask abi check --fetch",
                missing.join(", ")
            );
            return;
        }
        check(false).unwrap();
    }

    #[test]
    fn a_kernels_new_system_calls_are_named() {
        let source = tempfile::tempdir().unwrap();
        assert!(calls_without_row(source.path()).is_err(), "a source without tables");
        let [file, other] = [0, 1].map(|table| source.path().join(SYSTEM_CALLS[table].0));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(other, "").unwrap();
        let table = "# number abi name entry\n0 common read sys_read\n1 64 write sys_write\n\
                     174 64 create_module\n156 64 _sysctl sys_ni_syscall\n512 x32 rt_sigaction x\n\
                     999 common brand_new sys_brand_new\n3 common open sys_open\n";
        fs::write(file, table).unwrap();
        let found = calls_without_row(source.path()).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("brand_new") && found[0].contains("no row"), "{found:?}");
        assert!(found[1].contains("open") && found[1].contains("3, and 2"), "{found:?}");
    }

    #[test]
    fn a_name_of_neither_folder_nor_series_says_what_to_fetch() {
        let error = source(Path::new("0.1")).unwrap_err().to_string();
        assert!(error.contains("cargo xtask abi fetch 0.1"), "{error}");
    }

    #[test]
    fn a_file_of_facts_is_compared_as_a_source_is() {
        let mut facts = checked_in().unwrap();
        let folder = tempfile::tempdir().unwrap();
        facts.methods.retain(|method| method.method != "UVERBS_METHOD_REG_MR");
        let file = folder.path().join("facts.json");
        fs::write(&file, verbgate_abi_extract::to_json(&facts).unwrap()).unwrap();
        let run = |old: &Path, new: &Path| {
            format!("{:?}", run(Command::Diff { old: old.into(), new: new.into() }).unwrap())
        };
        assert_eq!(run(&file, &file), format!("{:?}", ExitCode::SUCCESS));
        let all = super::file("data/uverbs_methods.json");
        assert_eq!(run(&file, &all), format!("{:?}", ExitCode::from(1)));
        fs::write(&file, "{}").unwrap();
        let error = format!("{:#}", super::facts(&file).unwrap_err());
        assert!(error.contains("facts.json"), "{error}");
    }
}
