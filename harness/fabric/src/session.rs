//! The session of a fabric command, from begin to end: the ranks meet, open their rails, and run
//! the preflight.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use verbgate_verbs::Transport;

use crate::cause::Cause;
use crate::error::Error;
use crate::hardware::Hardware;
use crate::hardware::Needs;
use crate::hardware::Rails;
use crate::injection::Injection;
use crate::interrupt::Interrupt;
use crate::meeting;
use crate::meeting::Published;
use crate::options;
use crate::options::Connect;
use crate::options::Identity;
use crate::preflight;
use crate::preflight::Check;
use crate::preflight::Verdict;
use crate::rail::Rail;
use crate::rdma_cm::Cm;
use crate::rendezvous::Entry;
use crate::rendezvous::Hello;
use crate::rendezvous::Link;
use crate::rendezvous::Server;
use crate::rendezvous::Table;
use crate::rendezvous::VERSION;
use crate::sound::Failed;
use crate::sound::Sound;

/// How long checks may take: neighbours that do not answer take a few seconds.
const CHECKS: Duration = Duration::from_secs(15);

/// A rank among the others.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) server: Option<Server>,
    pub(crate) link: Link,
    pub(crate) table: Table,
    /// On rank 0 those of all ranks, on the others their own that failed.
    pub(crate) checks: Vec<Check>,
    /// What passed.
    pub(crate) sound: Sound,
    /// This rank's rails, as far as they open.
    pub(crate) hardware: Rails,
}

impl Session {
    /// `parameters`: what must be the same on all ranks.
    pub(crate) fn open(me: &Identity, parameters: String, needs: Needs) -> Result<Self, Error> {
        Self::open_as(me, parameters, needs, |_| ())
    }

    /// The same; `change` is what a test makes this rank say of its rails.
    pub(crate) fn open_as(
        me: &Identity,
        parameters: String,
        needs: Needs,
        change: impl Fn(&mut Rail),
    ) -> Result<Self, Error> {
        // Before there are other threads, which take signals, too.
        let interrupt = Arc::new(Interrupt::by_signals());
        let server = (me.rank == 0).then(|| Server::start(&me.bind, me.ranks, me.patience));
        let server = server.transpose()?;
        let published = meeting::file(&me.rendezvous).zip(server.as_ref());
        let published = published.map(|(file, (_, at))| Published::new(file, *at)).transpose()?;
        let listens = server.as_ref().map(|(_, at)| *at);
        let told = meeting::by_pmi(&me.rendezvous, listens, me.patience)?;
        let mut looked: Vec<_> = me.rails.iter().map(Rail::look).collect();
        looked.iter_mut().for_each(|(rail, _)| change(rail));
        let rails: Vec<Rail> = looked.iter().map(|(rail, _)| rail.clone()).collect();
        let entry = Entry { rank: me.rank, host: host(), rails };
        let (rank, ranks) = (me.rank, me.ranks);
        let parameters = match me.connect {
            Connect::Rendezvous => parameters,
            Connect::RdmaCm => parameters + " --connect rdma-cm",
        };
        let parameters = match me.cross_rail {
            0 => parameters,
            by => format!("{parameters} --cross-rail {by}"),
        };
        let parameters = match me.transport {
            Transport::Rc => parameters,
            other => format!("{parameters} --transport {}", options::transport_word(other)),
        };
        let hello = Hello { version: VERSION, rank, ranks, parameters, entry: entry.clone() };
        // Rank 0 finds itself at its own address, whatever the others call it.
        let own = server.as_ref().map(|(_, at)| loopback(*at).to_string());
        let at = own.or(told).unwrap_or_else(|| me.rendezvous.clone());
        let mut link = match Link::join(&at, hello, me.patience, interrupt) {
            Ok(link) => link,
            Err(error) => {
                // The others are told, too, before rank 0 ends.
                if let (Error::Refused { .. }, Some((server, _))) = (&error, server) {
                    server.finish();
                }
                return Err(error);
            }
        };
        // All have found it.
        drop(published);
        let table = link.table()?;
        let opened: Vec<Result<Hardware, (Cause, String)>> = looked
            .into_iter()
            .map(|(rail, context)| {
                let context = context.ok_or_else(|| (Cause::NoDevice, "not open".to_owned()))?;
                Hardware::new(&rail, &context, ranks - 1, me.class, needs)
            })
            .collect();
        let registered: Vec<Result<(), (Cause, String)>> =
            opened.iter().map(|opened| opened.as_ref().map(drop).map_err(Clone::clone)).collect();
        let checks = preflight::run(&entry, &table, &registered, me.class, needs.memory());
        let all = link.collect_quietly("preflight", &checks, me.patience + CHECKS)?;
        let own = Failed::of(&checks);
        let failed = link.gather_quietly("failed checks", &own, me.patience + CHECKS)?;
        let sound = Sound::new(&failed);
        let failed = checks.into_iter().filter(|check| check.verdict == Verdict::Fail);
        let checks = all.unwrap_or_else(|| failed.collect());
        let hardware = Rails::new(opened.into_iter().map(Result::ok).collect());
        Ok(Self { server: server.map(|(server, _)| server), link, table, checks, sound, hardware })
    }
}

/// Connections by rdma_cm, if this rank is told so.
pub(crate) fn cm(me: &Identity, injection: Option<Injection>) -> Option<Cm> {
    (me.connect == Connect::RdmaCm).then(|| Cm::new(injection))
}

/// Writes what is known in the end, as JSON.
pub(crate) fn save(report: &impl Serialize, file: &Path) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(report).unwrap_or_default();
    fs::write(file, text).map_err(|error| Error::Io {
        what: format!("cannot write the report {}", file.display()),
        error,
    })
}

/// This rank is done; rank 0 stays until all are.
pub(crate) fn leave(link: Link, server: Option<Server>) -> Result<(), Error> {
    link.leave()?;
    if let Some(server) = server {
        server.finish();
    }
    Ok(())
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Where a listener at any address is found from its own host.
fn loopback(mut at: std::net::SocketAddr) -> std::net::SocketAddr {
    if at.ip().is_unspecified() {
        at.set_ip(match at {
            std::net::SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            std::net::SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    at
}
