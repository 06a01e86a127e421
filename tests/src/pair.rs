//! Two ends of one exchange: a server and its client.

use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use verbgate_wait::Stalled;

use crate::exec;
use crate::exec::Ended;
use crate::exec::Program;
use crate::world;
use crate::world::new_listener;

/// How often an exchange of `rping` is run that hangs.
const TRIES: usize = 3;

/// The server, as its client calls it: the address of the exchange over TCP, not of the traffic.
const SERVER: &str = "127.0.0.1";

/// Both ends, running.
#[derive(Debug)]
pub struct Pair {
    /// Started first.
    pub server: Program,
    /// Started when the server listened.
    pub client: Program,
}

/// Both ends, over.
#[derive(Debug)]
pub struct BothEnded {
    /// Started first.
    pub server: Ended,
    /// Started when the server listened.
    pub client: Ended,
}

impl Pair {
    /// Starts both ends of `argv`: the client is told `-p PORT SERVER`, the server `-p PORT`.
    /// `launch` makes a command of an argument vector.
    pub fn start(
        argv: &[String],
        mut launch: impl FnMut(&'static str, &[&str]) -> Result<Command>,
    ) -> Result<Self> {
        let port = world::free_port()?;
        let number = port.to_string();
        let mut words: Vec<&str> = argv.iter().map(String::as_str).collect();
        words.extend(["-p", &number]);
        let mut server = Program::start(launch("server", &words)?)?;
        // A server that gives up before it listens is told by its status; its client fails too.
        exec::wait_until("a server that listens", || {
            Ok(world::is_listening(port) || server.has_ended()?)
        })?;
        words.push(SERVER);
        let client = Program::start(launch("client", &words)?)?;
        Ok(Self { server, client })
    }

    /// Starts a server that listens on this device by the connection manager, and then its client.
    pub fn meet(device: &str, server: Command, client: Command) -> Result<Self> {
        let listens = new_listener(device);
        let mut server = Program::start(server)?;
        exec::wait_until("a server that listens", || {
            // One that gives up before is told by its status.
            Ok(listens() || server.has_ended()?)
        })?;
        Ok(Self { server, client: Program::start(client)? })
    }

    /// Waits for both.
    pub fn wait(self) -> Result<BothEnded> {
        let mut server = self.server;
        let client = match self.client.wait() {
            Ok(client) => client,
            Err(error) => {
                return Err(error.context(format!("its server {}", server.describe()?)));
            }
        };
        let server = server.wait().with_context(|| format!("its client had ended: {client}"))?;
        Ok(BothEnded { server, client })
    }
}

/// Runs an exchange of a program that connects by `rdma_cm`, and again where that is `rping` and hangs. Events of the end
/// are left out of what both ends say: whether they are seen before the end is up to the scheduler.
///
/// Natively, too, `rping` may hang at its end: it destroys an id, and the id's last event with it, after its other thread
/// has seen the event by poll(2), and before that thread asks for it (`librdmacm/examples/rping.c`).
pub fn by_manager(program: &str, run: impl Fn() -> Result<BothEnded>) -> Result<BothEnded> {
    let most = if program == "rping" { TRIES } else { 1 };
    let mut tries = 1;
    let mut ended = loop {
        match run() {
            Err(error) if error.is::<Stalled>() && tries < most => tries += 1,
            ended => break ended?,
        }
    };
    let of_the_end = |line: &str| {
        line.contains("DISCONNECT EVENT") || line.contains("RDMA_CM_EVENT_TIMEWAIT_EXIT")
    };
    for end in [&mut ended.client, &mut ended.server] {
        let lines = end.stderr.lines().filter(|line| !of_the_end(line));
        end.stderr = lines.map(|line| format!("{line}\n")).collect();
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use verbgate_wait::Wait;

    use super::*;

    #[test]
    fn only_rping_that_hangs_is_run_again() {
        for (program, runs) in [("rping", TRIES), ("ucmatose", 1)] {
            let count = Cell::new(0);
            let hangs = || {
                count.set(count.get() + 1);
                let wait = Wait::new("nothing").quiet(Duration::from_millis(1));
                let stalled = wait.try_until(|| anyhow::Ok(false)).context("the program");
                Err(stalled.context("its server").unwrap_err())
            };
            assert!(by_manager(program, hangs).is_err());
            assert_eq!(count.get(), runs, "{program}");
        }
    }
}
