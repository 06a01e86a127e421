//! `cargo xtask engines`: every container engine by every feature, and the table of the answers in the
//! command's README.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::ExitCode;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde::Deserialize;
use serde_json::Map;
use serde_json::Value;
use verbgate_lab::Cluster;
use verbgate_lab::ENGINE_SUITES;
use verbgate_lab::Engines;
use verbgate_lab::Progress;

use crate::engines_lab;
use crate::host;
use crate::stream;
use crate::stream::cargo;
use crate::stream::workspace;

/// Names the file that gets the answers: `harness/tests/containers/engines/matrix.rs`.
const TABLE: &str = "VERBGATE_ENGINES_TABLE";
const README: &str = "harness/README.md";
/// The table is between these.
const BEGIN: &str = "<!-- The table of: cargo xtask engines --write -->\n";
const END: &str = "<!-- End of the table -->\n";
/// Beginning of the names of the tests that answer.
const TESTS: &str = "engines::matrix::";

/// Names the folder with a cluster's programs: `harness/tests/containers/engines/cluster.rs`.
const CLUSTER: &str = "VERBGATE_CLUSTER";
const CLUSTER_TEST: &str = "engines::cluster::";
/// Its containerd is the newest that speaks with such an old kubelet.
const CLUSTER_SUITE: &str = "trixie";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Part of a name: try only the engines whose tests hold WORD (docker, containerd, podman, or a suite of
    /// Debian).
    #[arg(value_name = "WORD")]
    word: Option<String>,
    /// Write the table into harness/README.md.
    #[arg(long, conflicts_with = "word")]
    write: bool,
    /// Run perftest and rping between containers in the lab's machine with this kernel instead; WORD is docker,
    /// cri, or kubernetes (6.12 alone).
    #[arg(long, value_name = "KERNEL", conflicts_with = "write")]
    lab: Option<String>,
    /// Run a Kubernetes cluster of one node instead: API server, scheduler, controllers, kubelet. They are built once,
    /// from the source package of bookworm.
    #[arg(long, conflicts_with_all = ["write", "lab", "word"])]
    cluster: bool,
}

/// An engine's answers.
#[derive(Debug, Deserialize)]
struct Answers {
    engine: String,
    order: Vec<String>,
    cells: Map<String, Value>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(kernel) = &args.lab {
        return engines_lab::run(kernel, args.word.as_deref());
    }
    if args.cluster {
        return cluster();
    }
    for suite in ENGINE_SUITES {
        Engines::of(suite, &Progress::stderr())?;
    }
    let file = PathBuf::from(workspace()).join("target/engines.jsonl");
    // An older run's answers are none of this one's.
    let _ = fs::remove_file(&file);
    let mut command = tests();
    command.env(TABLE, &file);
    let tests = args.word.as_ref().map_or(TESTS, |word| word);
    command.arg(tests);
    let passed = stream::lines(command, host::show)?;
    let text = fs::read_to_string(&file).unwrap_or_default();
    let answers = text.lines().filter(|line| !line.is_empty()).map(serde_json::from_str);
    let answers: Vec<Answers> =
        answers.collect::<Result<_, _>>().context("cannot read the answers")?;
    if answers.is_empty() {
        bail!("no engine has answered: the lines above say why");
    }
    let table = table(answers)?;
    println!("{table}");
    if args.write {
        let path = Path::new(workspace()).join(README);
        let readme = fs::read_to_string(&path)?;
        fs::write(&path, replaced(&readme, &table)?)?;
    }
    Ok(ExitCode::from(u8::from(!passed)))
}

/// The tests of engines, one after another; the words that choose among them follow.
fn tests() -> Command {
    let mut command = cargo();
    command.args(["test", "--quiet", "--package", "verbgate", "--test", "containers", "--"]);
    command.args(["--test-threads=1", "--show-output"]).env("RUST_BACKTRACE", "0");
    command
}

/// A cluster of one node.
fn cluster() -> Result<ExitCode> {
    let progress = Progress::stderr();
    Engines::of(CLUSTER_SUITE, &progress)?;
    let programs = Cluster::of(&progress)?;
    let mut command = tests();
    command.env(CLUSTER, programs.dir()).arg(CLUSTER_TEST);
    let passed = stream::lines(command, host::show)?;
    Ok(ExitCode::from(u8::from(!passed)))
}

/// The text with another table.
fn replaced(text: &str, table: &str) -> Result<String> {
    let missing = || format!("{README} has no place for the table: {BEGIN}");
    let (before, rest) = text.split_once(BEGIN).with_context(missing)?;
    let (_, after) = rest.split_once(END).with_context(missing)?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

/// The table: a row for each feature, a column for all engines that answer alike.
fn table(mut answers: Vec<Answers>) -> Result<String> {
    answers.sort_by_key(|one| (name_of(&one.engine).to_owned(), numbers(&one.engine)));
    let order = answers.first().context("no engine has answered")?.order.clone();
    let mut columns: Vec<(String, Map<String, Value>)> = Vec::new();
    for Answers { engine, cells, .. } in answers {
        let alike = |(names, known): &&mut (String, Map<String, Value>)| {
            *known == cells && name_of(names) == name_of(&engine)
        };
        match columns.iter_mut().find(alike) {
            Some((names, _)) => {
                let version = engine.strip_prefix(name_of(&engine)).unwrap_or(&engine);
                *names = format!("{names}, {version}");
            }
            None => columns.push((engine, cells)),
        }
    }
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let heads = [""].into_iter().chain(columns.iter().map(|(names, _)| names.as_str()));
    let mut text = line(heads.collect());
    text += &format!("|{}\n", "---|".repeat(columns.len() + 1));
    for feature in &order {
        let cell = |(_, cells): &(String, Map<String, Value>)| {
            cells.get(feature).and_then(Value::as_str).unwrap_or("not tried").to_owned()
        };
        let cells: Vec<String> = columns.iter().map(cell).collect();
        text +=
            &line([feature.as_str()].into_iter().chain(cells.iter().map(String::as_str)).collect());
    }
    Ok(text)
}

/// An engine's name without its version.
fn name_of(engine: &str) -> &str {
    engine.split_once(|c: char| c.is_ascii_digit()).map_or(engine, |(name, _)| name)
}

fn numbers(engine: &str) -> Vec<u32> {
    engine.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answers(engine: &str, cells: Value) -> Answers {
        let order = vec!["create".to_owned(), "rm".to_owned()];
        Answers { engine: engine.into(), order, cells: cells.as_object().unwrap().clone() }
    }

    #[test]
    fn engines_that_answer_alike_share_a_column() {
        let yes = || json!({"create": "yes", "rm": "yes"});
        let all = vec![
            answers("podman 5.4", yes()),
            answers("Docker 26.1", yes()),
            answers("Docker 4.10", yes()),
            answers("Docker 28.5", json!({"create": "**no**"})),
        ];
        let wanted = "|  | Docker 4.10, 26.1 | Docker 28.5 | podman 5.4 |\n|---|---|---|---|\n\
                      | create | yes | **no** | yes |\n| rm | yes | not tried | yes |\n";
        assert_eq!(table(all).unwrap(), wanted);
    }

    #[test]
    fn only_the_table_changes() {
        let text = format!("a\n{BEGIN}old\n{END}b\n");
        assert_eq!(replaced(&text, "new\n").unwrap(), format!("a\n{BEGIN}new\n{END}b\n"));
        assert!(replaced("a\n", "new\n").is_err());
        assert!(fs::read_to_string(Path::new(workspace()).join(README)).unwrap().contains(BEGIN));
    }
}
