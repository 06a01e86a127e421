//! `verbgate show` and `verbgate stats`: the objects and counters of containers' supervisors.

use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Error;
use anyhow::anyhow;
use serde_json::Value;
use serde_json::json;

use super::agent;
use super::inspect;
use crate::metrics::metrics;
use crate::options::Globals;
use verbgate_host::output::print;

/// Shows one container.
pub fn show(globals: &Globals, sandbox: &str, as_json: bool) -> Result<u8, Error> {
    let one = find(inspect::all(globals)?, sandbox)?;
    let text = if as_json { format!("{one}\n") } else { lines(&one) };
    print(&text)?;
    Ok(0)
}

fn find(all: Vec<Value>, wanted: &str) -> Result<Value, Error> {
    let id = |one: &Value| one.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let exact = all.iter().position(|one| id(one) == wanted);
    let mut all: Vec<Value> = match exact {
        Some(at) => all.into_iter().skip(at).take(1).collect(),
        None => all.into_iter().filter(|one| id(one).starts_with(wanted)).collect(),
    };
    match (all.pop(), all.len()) {
        (Some(one), 0) => Ok(one),
        (None, _) => Err(anyhow!("no container {wanted:?} has RDMA (see: verbgate ps)")),
        (Some(_), more) => Err(anyhow!(
            "the ids of {} containers begin with {wanted:?}; give more of the id",
            more + 1
        )),
    }
}

pub(super) fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

pub(super) fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or_default()
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("-")
}

pub(super) fn pairs<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a str, u64)> {
    let object = value.get(key).and_then(Value::as_object).into_iter().flatten();
    object.map(|(name, count)| (name.as_str(), count.as_u64().unwrap_or_default()))
}

/// The text for people.
fn lines(one: &Value) -> String {
    let word =
        |key: &str| one.get(key).filter(|v| !v.is_null()).map_or("-".into(), Value::to_string);
    let devices: Vec<&str> = list(one, "devices").filter_map(Value::as_str).collect();
    let mut out = format!(
        "container   {}\npod         {}\nbundle      {}\nprofile     {}\ndevices     {}\npid         {}\n\
         supervisor  {}\n",
        text(one, "id"),
        inspect::pod(one),
        text(one, "bundle"),
        text(one, "profile"),
        devices.join(","),
        word("pid"),
        word("supervisor"),
    );
    let joined = |value: &Value, key: &str| -> String {
        pairs(value, key).map(|(name, count)| format!(" {name}={count}")).collect()
    };
    for served in list(one, "served") {
        if served.is_null() {
            out += "busy; ask again\n";
            continue;
        }
        for process in list(served, "processes") {
            out += &format!(
                "process     {} pinned={} stubs={}\n",
                number(process, "pid"),
                number(process, "pinned"),
                number(process, "stubs"),
            );
        }
        for ucontext in list(served, "ucontexts") {
            let processes: Vec<String> =
                list(ucontext, "processes").map(|process| format!(" pid={process}")).collect();
            out += &format!(
                "ucontext    {} {}{}{}\n",
                number(ucontext, "number"),
                text(ucontext, "device"),
                processes.concat(),
                joined(ucontext, "objects"),
            );
        }
        for key in ["requests", "refused"] {
            out += &format!("{key:<11}{}\n", joined(served, key));
        }
        let counts = ["failed", "opened", "planted", "notifications"];
        let counts: String =
            counts.iter().map(|key| format!(" {key}={}", number(served, key))).collect();
        out += &format!("counts     {counts}\n");
    }
    out
}

/// Prints or serves numbers for monitoring.
pub fn stats(globals: &Globals, listen: Option<&Path>, as_json: bool) -> Result<u8, Error> {
    let Some(path) = listen else {
        let all = inspect::all(globals)?;
        let text = if as_json { format!("{}\n", json!(all)) } else { metrics(&all)? };
        print(&text)?;
        return Ok(0);
    };
    if !path.as_os_str().as_encoded_bytes().contains(&b'/') {
        return Err(anyhow!(
            "--listen {path:?}: counters are served on a Unix socket, and this is no path; give one as \
             /run/verbgate/stats.sock, or with ./ for this directory; for a TCP port, let a proxy pass the requests on"
        ));
    }
    let listener = agent::listener(path)?;
    loop {
        let reader = match listener.accept() {
            Ok((reader, _)) => reader,
            Err(error) => {
                log::warn!("cannot accept a reader of counters now: {error}");
                std::thread::sleep(READER_PATIENCE);
                continue;
            }
        };
        let text = inspect::all(globals).and_then(|all| metrics(&all));
        let answered = text.and_then(|text| Ok(answer(reader, &text)?));
        if let Err(error) = answered {
            log::warn!("cannot answer a request for counters: {error:#}");
        }
    }
}

/// Time for a reader to ask, and to read.
const READER_PATIENCE: Duration = Duration::from_millis(500);

/// Answers a reader by HTTP, if that is what it speaks.
fn answer(mut reader: UnixStream, text: &str) -> io::Result<()> {
    reader.set_read_timeout(Some(READER_PATIENCE))?;
    reader.set_write_timeout(Some(READER_PATIENCE))?;
    let mut asked = [0; 4096];
    let mut len = 0;
    while let Some(rest) = asked.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match reader.read(rest) {
            Ok(0) | Err(_) => break,
            Ok(more) => len += more,
        }
        if asked.get(..len).is_some_and(|asked| asked.ends_with(b"\r\n\r\n")) {
            break;
        }
    }
    if asked.starts_with(b"GET ") {
        write!(
            reader,
            "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; \
             charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            text.len()
        )?;
    }
    reader.write_all(text.as_bytes())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn one() -> Value {
        json!({
            "id": "c\"1", "bundle": "/b", "profile": "hpc", "devices": ["uverbs0"], "pid": 7,
            "supervisor": 8, "started": true, "holds": {"qp": 2}, "rdma_used": true,
            "hw_counters": [{"device": "mlx5_0", "port": 1, "values": {"out_of_buffer": 3}}],
            "past": {"requests": {"CREATE_QP": 1}, "opened": 1},
            "served": [Value::Null, {
                "requests": {"CREATE_QP": 2}, "refused": {"GID": 1}, "executed": 2, "failed": 0,
                "opened": 1, "planted": 1, "notifications": 9, "calls": 40, "ucontext_count": 1,
                "ucontexts": [{"number": 3, "device": "uverbs0", "processes": [7], "objects": {"QP": 2}}],
                "processes": [{"pid": 7, "stubs": 1, "pinned": 4096}],
            }],
        })
    }

    #[test]
    fn a_container_is_found_by_the_beginning_of_its_id() {
        let all = || ["ab1", "ab2", "ab"].map(|id| json!({"id": id})).to_vec();
        assert_eq!(find(all(), "ab").unwrap()["id"], "ab");
        assert_eq!(find(all(), "ab1").unwrap()["id"], "ab1");
        assert!(find(all(), "a").unwrap_err().to_string().contains("3 containers"));
        assert!(find(all(), "x").unwrap_err().to_string().contains("verbgate ps"));
    }

    #[test]
    fn people_read_what_it_holds() {
        let text = lines(&one());
        for line in
            ["ucontext    3 uverbs0 pid=7 QP=2", "process     7 pinned=4096 stubs=1", "busy"]
        {
            assert!(text.contains(line), "{text}");
        }
    }
}
