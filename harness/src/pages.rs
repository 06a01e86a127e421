//! Man pages and completions for packages, made from the definition of the command line.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Error;
use anyhow::anyhow;
use clap::Command;
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::cli::PagesArgs;
use crate::failure::Failure;
use crate::policy_pages;

/// Paths of each shell's file, as packages install the file.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "completions/verbgate"),
    (Shell::Zsh, "completions/_verbgate"),
    (Shell::Fish, "completions/verbgate.fish"),
];

/// Writes them.
pub(crate) fn run(args: &PagesArgs) -> Result<u8, Failure> {
    write(&args.dir, &args.date).map_err(Failure::of_tool)
}

fn write(dir: &Path, date: &str) -> Result<u8, Error> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |e: io::Error| anyhow!("cannot write {}: {e}", path.display())
    };
    let mut command = Cli::command();
    for name in ["man", "completions", "schema"] {
        let path = dir.join(name);
        fs::create_dir_all(&path).map_err(at(&path))?;
    }
    for (shell, name) in COMPLETIONS {
        let path = dir.join(name);
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "verbgate", &mut text);
        fs::write(&path, text).map_err(at(&path))?;
    }
    command.build();
    pages(&command, date, &dir.join("man"))?;
    for (name, text) in policy_pages::all(date)? {
        let path = dir.join(name);
        fs::write(&path, text).map_err(at(&path))?;
    }
    Ok(0)
}

/// A page for a command and for each of its commands, but for hidden ones.
fn pages(command: &Command, date: &str, dir: &Path) -> Result<(), Error> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        pages(sub, date, dir)?;
    }
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = dir.join(format!("{name}.1"));
    let mut text = Vec::new();
    Man::new(command.clone())
        .title(name.to_uppercase())
        .date(date)
        .source(concat!("verbgate ", env!("CARGO_PKG_VERSION")))
        .manual("Verbgate")
        .render(&mut text)
        .and_then(|()| fs::write(&path, tidy(&String::from_utf8_lossy(&text))))
        .map_err(|e| anyhow!("cannot write {}: {e}", path.display()))
}

/// Space without the breaks around it, of which mandoc(1) complains.
fn tidy(text: &str) -> String {
    text.replace("\n.br\n\n.br\n", "\n.sp\n")
}
