//! Every engine by every feature, each engine with the configuration and the seccomp profile that it has by
//! default. `cargo xtask engines` makes a table of the answers.

use std::fs::File;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use serde_json::json;
pub(crate) use verbgate_wait::until;

use crate::engines::docker;
use crate::engines::drivers::Cri;
use crate::engines::drivers::Docker;
use crate::engines::drivers::Engine;
use crate::engines::drivers::Podman;
use crate::engines::image;
use crate::engines::podman;
use crate::engines::pods::Node;
use crate::engines::world::SYS;
use crate::engines::world::World;

/// The table that the answers of a run with [`TABLE`] have made; every other run compares its own.
const README: &str = include_str!("../../../README.md");
const BEGIN: &str = "<!-- The table of: cargo xtask engines --write -->\n";
const END: &str = "<!-- End of the table -->";
/// Names a file that gets a line of JSON for each engine.
const TABLE: &str = "VERBGATE_ENGINES_TABLE";
/// The code of a process that SIGKILL has ended.
const KILLED: i32 = 137;

/// What `verbgate ps` says of a container.
fn shown(engine: &mut dyn Engine, id: &str) -> Option<serde_json::Value> {
    engine.world().supervised().into_iter().find(|one| one["id"] == id)
}

fn kill(engine: &mut dyn Engine, pid: &str) {
    engine.world().done(&["kill", "-KILL", pid]);
}

fn number(engine: &mut dyn Engine, id: &str, key: &str) -> String {
    shown(engine, id).unwrap()[key].to_string()
}

fn assert_has_rdma(engine: &mut dyn Engine, id: &str) {
    let (code, said) = engine.exec(id, &image::ASK);
    assert!(code == 0 && said.trim_end().ends_with(image::ANSWER), "{code} {said}");
}

fn gone(engine: &mut dyn Engine, id: &str) {
    engine.remove(id);
    engine.world().assert_nothing_left();
}

/// Whether a container survives its engine, and can be removed afterwards.
fn restarted(engine: &mut dyn Engine, id: &str, kill: bool) -> &'static str {
    if !engine.restart(kill) {
        gone(engine, id);
        return "no daemon";
    }
    let stays = shown(engine, id).is_some();
    if stays {
        assert_has_rdma(engine, id);
    }
    gone(engine, id);
    if stays { "stays" } else { "ends" }
}

type Feature = (&'static str, fn(&mut dyn Engine) -> &'static str);

/// Each begins and ends with nothing of ours in the world.
const FEATURES: &[Feature] = &[
    ("create, exec", |engine| {
        let id = engine.run("create");
        assert_has_rdma(engine, &id);
        assert_eq!(engine.exec(&id, &["sh", "-c", "exit 5"]).0, 5);
        gone(engine, &id);
        "yes"
    }),
    ("own `/sys`", |engine| {
        let id = engine.run("sys");
        let (_, sys) = engine.exec(&id, &["sh", "-c", SYS]);
        assert_eq!(sys.split(' ').nth(2), Some("fuse"), "{sys}");
        gone(engine, &id);
        "yes"
    }),
    ("two in a pod", |engine| {
        let [first, second] = engine.pod();
        assert_eq!(engine.world().supervised().len(), 2);
        for id in [&first, &second] {
            assert_has_rdma(engine, id);
        }
        engine.remove(&first);
        assert_has_rdma(engine, &second);
        gone(engine, &second);
        "yes"
    }),
    ("stop, logs", |engine| {
        let id = engine.run("stop");
        until("a line of the log", || engine.logs(&id).contains("here"));
        engine.stop(&id);
        assert_eq!(engine.exit_code(&id), Some(7));
        gone(engine, &id);
        "yes"
    }),
    ("stats", |engine| {
        let id = engine.run("stats");
        let said = engine.stats(&id);
        assert!(said.contains(&id[..12]), "{said}");
        let ours = engine.world().done(&["verbgate", "stats"]);
        assert!(ours.contains(&id), "{ours}");
        gone(engine, &id);
        "yes"
    }),
    ("checkpoint", |engine| {
        let id = engine.run("checkpoint");
        let why = engine.checkpoint(&id);
        assert!(why.split_whitespace().count() > 3, "{why:?}");
        // A container that could not be saved goes on.
        assert_has_rdma(engine, &id);
        gone(engine, &id);
        if why.contains("cannot be checkpointed") { "refused" } else { "not offered" }
    }),
    ("restart of the engine: the container", |engine| {
        let id = engine.run("restart");
        restarted(engine, &id, false)
    }),
    ("`kill -9` of the engine: the container", |engine| {
        let id = engine.run("crash");
        restarted(engine, &id, true)
    }),
    ("of shim or conmon", |engine| {
        let id = engine.run("shim");
        let pid = number(engine, &id, "pid");
        let status = engine.world().read(&format!("/proc/{pid}/status")).unwrap();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
        kill(engine, parent.trim());
        // An engine that ends the container then does so in its own time.
        until("the shim's end", || {
            engine.world().read(&format!("/proc/{}/stat", parent.trim())).is_none()
        });
        engine.remove(&id);
        // podman 4 then never has its runtime delete the container.
        until("the supervisor's end", || {
            engine.world().done(&["verbgate", "gc"]);
            engine.world().supervised().is_empty()
        });
        engine.world().assert_nothing_left();
        "cleaned up"
    }),
    ("of the container's init", |engine| {
        let id = engine.run("init");
        let pid = number(engine, &id, "pid");
        kill(engine, &pid);
        until("the exit code", || engine.exit_code(&id) == Some(KILLED));
        gone(engine, &id);
        "exit 137"
    }),
    ("of the supervisor", |engine| {
        let id = engine.run("supervisor");
        let pid = number(engine, &id, "supervisor");
        kill(engine, &pid);
        until("its end", || number(engine, &id, "supervisor") == "null");
        let (code, why) = engine.exec(&id, &["true"]);
        assert!(code != 0 && why.contains("supervisor is gone"), "{code} {why}");
        gone(engine, &id);
        "no RDMA; `exec` says so"
    }),
];

/// Tries everything, whatever fails, and writes the answers down.
fn try_all(name: &str, engine: &mut dyn Engine) {
    engine.world().begins_here();
    let mut failed = Vec::new();
    let mut cells = serde_json::Map::new();
    for (feature, holds) in FEATURES {
        let cell = catch_unwind(AssertUnwindSafe(|| holds(engine)));
        if cell.is_err() {
            failed.push(*feature);
            // The next begins with nothing of this one, if that can be had.
            for one in engine.world().supervised() {
                let id = one["id"].as_str().unwrap_or_default().to_owned();
                let _ = catch_unwind(AssertUnwindSafe(|| engine.remove(&id)));
            }
        }
        cells.insert((*feature).to_owned(), cell.unwrap_or("**no**").into());
    }
    if let Ok(path) = std::env::var(TABLE) {
        let order: Vec<&str> = FEATURES.iter().map(|(feature, _)| *feature).collect();
        let line = json!({"engine": name, "order": order, "cells": cells});
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
    assert!(failed.is_empty(), "{name}: {failed:?}");
    assert_is_in_table(name, &cells);
}

/// The table's columns: engines' names and versions, and the answers by features.
fn columns(text: &str) -> Vec<(String, Vec<(String, String)>)> {
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>())
        .filter(|row| !row[0].starts_with("---"))
        .collect();
    let cells = |at: usize| {
        rows[1..].iter().map(|row| (row[0].to_owned(), row[at].to_owned())).collect::<Vec<_>>()
    };
    (1..rows[0].len()).map(|at| (rows[0][at].to_owned(), cells(at))).collect()
}

/// The README says what this engine has answered; of a version that is not in the table, what one of its versions has.
fn assert_is_in_table(name: &str, cells: &serde_json::Map<String, serde_json::Value>) {
    if std::env::var_os(TABLE).is_some() {
        return;
    }
    let table = README.split_once(BEGIN).unwrap().1.split_once(END).unwrap().0;
    let (engine, version) = name.rsplit_once(' ').unwrap();
    let all = columns(table).into_iter().filter(|(head, _)| head.starts_with(engine));
    let all: Vec<_> = all.collect();
    let own = all.iter().filter(|(head, _)| head.split([' ', ',']).any(|word| word == version));
    let own: Vec<_> = own.collect();
    let says = |(_, known): &&(String, Vec<(String, String)>)| {
        known.len() == cells.len()
            && known.iter().all(|(feature, cell)| cells.get(feature) == Some(&cell.as_str().into()))
    };
    let told = if own.is_empty() { all.iter().any(|one| says(&one)) } else { own.iter().any(says) };
    assert!(
        told,
        "{name}: the table in harness/README.md says otherwise (cargo xtask engines --write): {cells:?}"
    );
}

/// The word of a program's output that is its version, without the distribution's part.
fn version(world: &World, words: &[&str]) -> String {
    let said = world.done(words);
    let starts = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    let word = said.split([' ', '\n', ',']).find(starts).unwrap_or_default();
    word.split(['~', '+']).next().unwrap_or_default().to_owned()
}

fn docker_of(suite: &str) {
    let Some(mut world) = World::of(suite) else { return };
    world.done(&docker::CONFIGURE);
    let daemon = docker::start_with(&mut world, &docker::EXPERIMENTAL);
    if docker::works(&world) {
        let name = format!("Docker {}", version(&world, &["dockerd", "--version"]));
        try_all(&name, &mut Docker { world, daemon: Some(daemon) });
    }
}

fn containerd_of(suite: &str) {
    let Some(node) = World::of(suite).and_then(Node::of) else { return };
    let name = format!("containerd by CRI {}", version(&node.world, &["containerd", "--version"]));
    try_all(&name, &mut Cri { node, pods: Vec::new(), names: Vec::new() });
}

fn podman_of(suite: &str) {
    let Some(world) = World::of(suite) else { return };
    world.done(&podman::CONFIGURE);
    if podman::works(&world) {
        let name = format!("podman {}", version(&world, &["podman", "--version"]));
        try_all(&name, &mut Podman { world });
    }
}

#[test]
fn docker_bookworm() {
    docker_of("bookworm");
}

#[test]
fn docker_trixie() {
    docker_of("trixie");
}

#[test]
fn docker_sid() {
    docker_of("sid");
}

#[test]
fn containerd_bookworm() {
    containerd_of("bookworm");
}

#[test]
fn containerd_trixie() {
    containerd_of("trixie");
}

#[test]
fn containerd_sid() {
    containerd_of("sid");
}

#[test]
fn podman_bookworm() {
    podman_of("bookworm");
}

#[test]
fn podman_trixie() {
    podman_of("trixie");
}

#[test]
fn podman_sid() {
    podman_of("sid");
}
