//! Connections by rdma_cm: what programs do that find their peers by IP address. The ranks have told
//! each other their queue pairs before, so an end knows whose request has come.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::time::Duration;
use std::time::Instant;

use serde::Deserialize;
use serde::Serialize;
use verbgate_verbs::cm::CmEvent;
use verbgate_verbs::cm::CmId;
use verbgate_verbs::cm::EventChannel;
use verbgate_verbs::cm::EventKind;
use verbgate_verbs::cm::Tries;

use crate::cause::Cause;
use crate::connect::Control;
use crate::connect::Mesh;
use crate::connect::Open;
use crate::connect::Peer;
use crate::error::Error;
use crate::hardware::Hardware;
use crate::hardware::Made;
use crate::hardware::Tuning;
use crate::injection::Injection;
use crate::known::PathTo;
use crate::rendezvous::Link;

/// Of address and route, in milliseconds.
const RESOLVE: u16 = 4000;
/// How long events and ranks are listened to in turn.
const TURN: Duration = Duration::from_millis(2);
/// How long an event may take that tells why a path has failed.
const LATE: Duration = Duration::from_millis(500);
/// `IB_CM_REJ_INVALID_SERVICE_ID`: nobody listens.
const NOBODY: i32 = 8;
/// `IB_CM_REJ_CONSUMER_DEFINED`.
const PROGRAM: i32 = 28;

/// What a request says of itself.
#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Request(u32, usize, usize);

/// The connections that stand.
#[derive(Debug)]
pub(crate) struct Cm {
    injection: Option<Injection>,
    /// Each is of a peer and a rail.
    ids: Vec<(PathTo, CmId)>,
    /// Where their events come.
    channel: Option<EventChannel>,
    /// Connections that their peers have ended.
    ended: BTreeSet<PathTo>,
}

impl Cm {
    pub(crate) fn new(injection: Option<Injection>) -> Self {
        Self { injection, ids: Vec::new(), channel: None, ended: BTreeSet::new() }
    }

    /// Ends them; the queue pairs are not theirs.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.ended.clear();
    }

    /// Ends those with one peer.
    pub(crate) fn end(&mut self, peer: u32) {
        self.ids.retain(|((of, _), _)| *of != peer);
    }

    /// Whether the peer has ended this connection, whose path has failed. The event may come after the
    /// failure.
    pub(crate) fn has_ended(&mut self, path: PathTo) -> Result<bool, Error> {
        let Some(channel) = self.channel.clone() else { return Ok(false) };
        if !self.ids.iter().any(|(of, _)| *of == path) {
            return Ok(false);
        }
        let deadline = Instant::now() + LATE;
        while !self.ended.contains(&path) && Instant::now() < deadline {
            if let Some(CmEvent { kind: EventKind::Disconnected, key, .. }) = channel.next(TURN)? {
                let of = self.ids.iter().filter(|(_, id)| id.key() == key).map(|(of, _)| *of);
                self.ended.extend(of);
            }
        }
        Ok(self.ended.contains(&path))
    }
}

/// What becomes of one connection.
#[derive(Debug, Default)]
struct CmAttempt {
    /// The peer asks.
    passive: bool,
    id: Option<CmId>,
    done: bool,
    /// The peer knows of the fault.
    told: bool,
    /// The peer's program has refused: the peer knows why.
    refused: bool,
    fault: Option<(Cause, String)>,
}

impl CmAttempt {
    fn is_settled(&self) -> bool {
        self.done || self.fault.is_some()
    }
}

/// By the peer's place among all.
type CmAttempts = BTreeMap<usize, CmAttempt>;

impl Mesh {
    /// Connects by rdma_cm all whose ends know each other, if that is wanted; what did not connect.
    pub(crate) fn by_cm(
        &mut self,
        link: &mut Link,
        stage: &str,
        patience: Duration,
    ) -> Result<Vec<Open>, Error> {
        let Some(Cm { injection, .. }) = self.cm else { return Ok(Vec::new()) };
        let deaf = injection == Some(Injection::NoListener);
        let channel = EventChannel::new()?;
        self.peers.iter_mut().for_each(|peer| peer.unmet = false);
        let mut listeners = Vec::new();
        let mut ports: Vec<Option<u16>> = vec![None; self.hardware.len()];
        for (rail, port) in ports.iter_mut().enumerate() {
            let Some(at) = self.hardware.get(rail).and_then(|own| address(own.rail.gid_bytes()))
            else {
                continue;
            };
            let id = CmId::new(&channel)?;
            *port = id.listen(at, u16::MAX >> 4).ok();

            listeners.extend(Some(id).filter(|_| !deaf));
        }
        let stage = format!("{stage} by rdma_cm");
        let told = link
            .gather(&stage, &ports, patience * 2, |link, from, body| self.hear(link, from, body))?;
        let mut attempts = self.attempts(link);
        for (index, attempt) in &mut attempts {
            if let Some(peer) = self.peers.get(*index).filter(|_| !attempt.passive) {
                let port = told.get(&peer.rank).and_then(|ports| *ports.get(peer.rail)?);
                match self.ask(&channel, peer, port) {
                    Ok(id) => attempt.id = Some(id),
                    Err(fault) => attempt.fault = Some(fault),
                }
            }
        }
        self.settle(link, &channel, &mut attempts, patience)?;
        let mut open = Vec::new();
        for (index, attempt) in attempts {
            let Some(peer) = self.peers.get(index) else { continue };
            if attempt.done {
                if let (Some(cm), Some(id)) = (&mut self.cm, attempt.id) {
                    cm.ids.push(((peer.rank, peer.rail), id));
                }
                continue;
            }
            let (rail, failed) = (peer.rail, attempt.fault.is_some());
            let refused = attempt.refused;
            let waits = || (Cause::CannotConnect, "no request of rdma_cm came".to_owned());
            let silent = || (Cause::Unreachable, "rdma_cm: no answer came".to_owned());
            let fault = attempt.fault;
            let (cause, why) = fault.unwrap_or_else(if attempt.passive { waits } else { silent });
            let failed = (failed || !attempt.passive) && !refused;
            open.push(Open { peer: peer.rank, rail, failed, why, cause: Some(cause) });
        }
        self.cm.iter_mut().for_each(|cm| cm.channel = Some(channel.clone()));
        Ok(open)
    }

    /// The lower rank of two asks.
    fn attempts(&self, link: &Link) -> CmAttempts {
        let peers = self.peers.iter().enumerate();
        let there = peers.filter(|(_, peer)| link.has(peer.rank) && peer.is_joined());
        let passive = |peer: &Peer| peer.rank < self.rank;
        there
            .map(|(i, peer)| (i, CmAttempt { passive: passive(peer), ..CmAttempt::default() }))
            .collect()
    }

    /// Begins a connection.
    fn ask(
        &self,
        channel: &EventChannel,
        peer: &Peer,
        port: Option<u16>,
    ) -> Result<CmId, (Cause, String)> {
        let (own, theirs) = self
            .hardware
            .get(peer.rail)
            .zip(peer.theirs.as_ref())
            .and_then(|(own, theirs)| Some((address(own.rail.gid_bytes())?, address(theirs.gid)?)))
            .ok_or_else(|| {
                let words = "rdma_cm needs GIDs of IP addresses, and this rail has another";
                (Cause::AddrError, words.to_owned())
            })?;
        let port = port.ok_or((Cause::Rejected, "rdma_cm: the peer cannot listen".to_owned()))?;
        let begin = || {
            let id = CmId::new(channel)?;
            let class = self.hardware.get(peer.rail).map_or(0, |own| own.traffic_class());
            id.set_type_of_service(class)?;
            id.resolve_address(own, SocketAddr::new(theirs, port), RESOLVE)?;
            Ok(id)
        };
        begin().map_err(|error: verbgate_verbs::Error| {
            (Cause::AddrError, format!("rdma_cm: the address {theirs} is not resolved: {error}"))
        })
    }

    /// Until all attempts are settled, or the time is over.
    fn settle(
        &mut self,
        link: &mut Link,
        channel: &EventChannel,
        attempts: &mut CmAttempts,
        patience: Duration,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + patience;
        // Whoever heard that the peer has failed does not wait for the peer.
        let unmet =
            |mesh: &Self, index: usize| mesh.peers.get(index).is_some_and(|peer: &Peer| peer.unmet);
        while attempts.iter().any(|(i, a)| !(a.is_settled() || a.passive && unmet(self, *i))) {
            if link.interrupt.has_come() {
                return Err(Error::Interrupted);
            }
            if Instant::now() >= deadline {
                return Ok(());
            }
            while let Some(event) = channel.next(TURN)? {
                self.happened(event, attempts);
            }
            for (index, attempt) in &mut *attempts {
                if let Some(peer) = self.peers.get(*index)
                    && attempt.fault.is_some()
                    && !std::mem::replace(&mut attempt.told, true)
                {
                    let (rail, lane) = (peer.rail, peer.lane);
                    link.send(peer.rank, &Control::Unmet { rail, lane })?;
                }
            }
            if let Some((from, body)) = link.receive(TURN)? {
                self.hear(link, from, body)?;
            }
        }
        Ok(())
    }

    fn happened(&self, event: CmEvent, attempts: &mut CmAttempts) {
        let CmEvent { kind, status, key, new, private } = event;
        if let Some(new) = new {
            // An identifier that is dropped rejects what nobody here waits for.
            let Some((peer, attempt)) = self.asked(&private, attempts) else { return };
            match self.join_by(peer, &new, true) {
                Ok(()) => attempt.id = Some(new),
                Err(error) => attempt.fault = Some((Cause::ConnectError, error)),
            }
            return;
        }
        let of = |(_, attempt): &(&usize, &mut CmAttempt)| {
            attempt.id.as_ref().is_some_and(|id| id.key() == key)
        };
        let Some((index, attempt)) = attempts.iter_mut().find(of) else { return };
        let (Some(peer), Some(id)) = (self.peers.get(*index), attempt.id.as_ref()) else { return };
        let next = match kind {
            EventKind::AddrResolved => {
                id.resolve_route(RESOLVE).map_err(|e| (Cause::RouteError, e.to_string()))
            }
            EventKind::RouteResolved => {
                self.request(peer, id).map_err(|e| (Cause::ConnectError, e))
            }
            EventKind::ConnectResponse => {
                attempt.done = true;
                self.join_by(peer, id, false).map_err(|e| (Cause::ConnectError, e))
            }
            EventKind::Established => {
                attempt.done = true;
                Ok(())
            }
            _ => failure(kind, status).map_or(Ok(()), Err),
        };
        if let Err(fault) = next {
            attempt.refused = (kind, status) == (EventKind::Rejected, PROGRAM);
            (attempt.done, attempt.fault) = (false, Some(fault));
        }
    }

    /// Whose request this is.
    fn asked<'a>(
        &'a self,
        private: &[u8],
        attempts: &'a mut CmAttempts,
    ) -> Option<(&'a Peer, &'a mut CmAttempt)> {
        let end = private.iter().rposition(|byte| *byte != 0)?;
        let of: Request = serde_json::from_slice(private.get(..=end)?).ok()?;
        let is = |peer: &Peer| Request(peer.rank, peer.rail, peer.lane) == of;
        let index = self.peers.iter().position(is)?;
        let attempt = attempts.get_mut(&index).filter(|attempt| attempt.passive)?;
        Some((self.peers.get(index)?, attempt))
    }

    fn request(&self, peer: &Peer, id: &CmId) -> Result<(), String> {
        let (own, made) = self.ends(peer).ok_or("the queue pair is gone")?;
        let words = serde_json::to_vec(&Request(self.rank, peer.rail, peer.lane));
        let words = words.map_err(|error| error.to_string())?;
        id.connect(&made.qp, own.reads(), &words).map_err(|error| error.to_string())
    }

    /// Connects the queue pair, and tells the peer.
    fn join_by(&self, peer: &Peer, id: &CmId, passive: bool) -> Result<(), String> {
        let (own, made) = self.ends(peer).ok_or("the queue pair is gone")?;
        let Tuning { min_rnr_timer, rnr_retry, timeout, retry_cnt } = self.tuning;
        if self.cm.as_ref().is_some_and(|cm| cm.injection == Some(Injection::DeadQueuePair)) {
            made.qp.abort().map_err(|error| error.to_string())?;
        }
        let tries = Tries { min_rnr_timer, rnr_retry, timeout, retry_cnt };
        let told = made.qp.connect_by(id, tries).and_then(|()| match passive {
            true => id.accept(&made.qp, own.reads()),
            false => id.establish(),
        });
        told.map_err(|error| error.to_string())
    }

    fn ends<'a>(&'a self, peer: &'a Peer) -> Option<(&'a Hardware, &'a Made)> {
        self.hardware.get(peer.rail).zip(peer.made.as_ref())
    }
}

/// The IP address that a GID of RoCE is; a link-local one leads nowhere without its link.
fn address(gid: [u8; 16]) -> Option<IpAddr> {
    let gid = Ipv6Addr::from(gid);
    let whole = gid.to_ipv4_mapped().map_or(IpAddr::V6(gid), IpAddr::V4);
    Some(whole).filter(|_| !gid.is_unicast_link_local() && !gid.is_unspecified())
}

/// The cause that an event names, if the event is of a failure.
fn failure(kind: EventKind, status: i32) -> Option<(Cause, String)> {
    let because = match status {
        0 => String::new(),
        status if status < 0 => {
            format!(": {}", std::io::Error::from_raw_os_error(status.saturating_neg()))
        }
        NOBODY => ": nobody listens at the port (reason 8)".to_owned(),
        PROGRAM => ": the program refused (reason 28)".to_owned(),
        reason => format!(": reason {reason}"),
    };
    let (cause, name) = match kind {
        EventKind::AddrError => (Cause::AddrError, "RDMA_CM_EVENT_ADDR_ERROR"),
        EventKind::RouteError => (Cause::RouteError, "RDMA_CM_EVENT_ROUTE_ERROR"),
        EventKind::ConnectError => (Cause::ConnectError, "RDMA_CM_EVENT_CONNECT_ERROR"),
        EventKind::Unreachable => (Cause::Unreachable, "RDMA_CM_EVENT_UNREACHABLE"),
        EventKind::Rejected => (Cause::Rejected, "RDMA_CM_EVENT_REJECTED"),
        EventKind::Disconnected => (Cause::Disconnected, "RDMA_CM_EVENT_DISCONNECTED"),
        _ => return None,
    };
    Some((cause, format!("{name}{because}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_failures_name_their_cause_and_reason() {
        let said = |kind, status| failure(kind, status).unwrap();
        let (cause, words) = said(EventKind::Rejected, 8);
        assert_eq!(cause, Cause::Rejected);
        assert!(words.contains("nobody listens"), "{words}");
        let (cause, words) = said(EventKind::AddrError, -libc_timeout());
        assert_eq!(cause, Cause::AddrError);
        assert!(words.contains("timed out"), "{words}");
        assert_eq!(said(EventKind::Unreachable, 0).1, "RDMA_CM_EVENT_UNREACHABLE");
        assert_eq!(said(EventKind::Disconnected, 0).0, Cause::Disconnected);
        assert_eq!(failure(EventKind::Established, 0), None);
    }

    fn libc_timeout() -> i32 {
        rustix::io::Errno::TIMEDOUT.raw_os_error()
    }

    #[test]
    fn a_gid_is_an_address_unless_it_is_of_one_link() {
        let of = |text: &str| address(text.parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(of("::ffff:10.0.0.1"), Some("10.0.0.1".parse().unwrap()));
        assert_eq!(of("fd00::1"), Some("fd00::1".parse().unwrap()));
        assert_eq!([of("fe80::1"), of("::")], [None, None]);
    }

    #[test]
    fn a_request_fits_into_the_private_data_of_a_connection() {
        let longest = Request(u32::MAX, 9999, 9999);
        assert!(serde_json::to_vec(&longest).unwrap().len() <= 56);
    }
}
