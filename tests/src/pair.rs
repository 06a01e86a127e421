//! Two ends of one exchange: a server and its client.

use std::process::Command;

use anyhow::Result;
use anyhow::bail;

use crate::exec;
use crate::exec::Ended;
use crate::exec::Program;
use crate::world;

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

    /// Waits for both.
    pub fn wait(self) -> Result<BothEnded> {
        let mut server = self.server;
        let client = match self.client.wait() {
            Ok(client) => client,
            Err(error) => bail!("{error:#}\nand its server {}", server.describe()?),
        };
        match server.wait() {
            Ok(server) => Ok(BothEnded { server, client }),
            Err(error) => bail!("{error:#}\nwhile its client had ended: {client}"),
        }
    }
}
