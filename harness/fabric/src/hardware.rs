//! An open rail, and queue pairs on the rail.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;
use verbgate_verbs::Access;
use verbgate_verbs::Caps;
use verbgate_verbs::Completion;
use verbgate_verbs::CompletionQueue;
use verbgate_verbs::Context;
use verbgate_verbs::GRH;
use verbgate_verbs::Limits;
use verbgate_verbs::Memory;
use verbgate_verbs::Path;
use verbgate_verbs::Pd;
use verbgate_verbs::QueuePair;
use verbgate_verbs::Region;
use verbgate_verbs::Transport;

use crate::cause::Cause;
use crate::class::Class;
use crate::endpoint::Sid;
use crate::explain;
use crate::explain::Of;
use crate::rail::Rail;
use crate::random;

/// The largest message of an exchange, in bytes; [`Needs`] may ask for more.
pub(crate) const LARGEST: usize = 1 << 20;
/// The longest message of a benchmark, in bytes: what one work request carries of the verbs' 2 GiB.
pub(crate) const LONGEST_MESSAGE: usize = 1 << 30;
/// The largest, and room for a header.
pub(crate) const SLOT: usize = LARGEST + 4096;
/// What a rail's memory is divided into: what is sent, what is received, what peers write to and
/// read from.
pub(crate) const OUT: usize = 0;
pub(crate) const IN: usize = SLOT;
pub(crate) const TARGET: usize = 2 * SLOT;

/// All of a rail's memory.
pub(crate) const MEMORY: usize = 3 * SLOT;

/// What a command needs of each rail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Needs {
    /// Queue pairs with each peer.
    pub(crate) lanes: u32,
    /// Threads, each with completions of its own.
    pub(crate) threads: u32,
    /// The longest message, in bytes. Those above [`LARGEST`] share one place in memory, and nothing
    /// can be compared.
    pub(crate) longest: usize,
    /// Completions are waited for, and not polled for.
    pub(crate) events: bool,
    pub(crate) kind: Memory,
    pub(crate) transport: Transport,
}

impl Default for Needs {
    fn default() -> Self {
        let (kind, transport) = (Memory::Host, Transport::Rc);
        Self { lanes: 1, threads: 1, longest: LARGEST, events: false, kind, transport }
    }
}

impl Needs {
    /// Bytes that the device puts before what it receives.
    pub(crate) fn before(self) -> usize {
        if self.transport == Transport::Ud { GRH } else { 0 }
    }

    /// All of a rail's memory, in bytes.
    pub(crate) fn memory(self) -> usize {
        if self.longest <= LARGEST { MEMORY } else { self.longest }
    }

    /// Whether a rail's memory fits into what the machine has to spare, if that is known: memory of
    /// queue pairs cannot be swapped out, and the kernel would end this program, or another.
    fn fit(self, spare: Option<usize>) -> Result<(), String> {
        let (memory, longest) = (self.memory(), self.longest);
        match spare {
            Some(spare) if memory > spare / 4 * 3 => Err(format!(
                "messages of {longest} bytes take {memory} bytes of memory on each rail, and this \
                 machine has {spare} to spare: give smaller --sizes"
            )),
            _ => Ok(()),
        }
    }

    /// Where a part of the memory is.
    pub(crate) fn at(self, part: usize) -> usize {
        if self.longest <= LARGEST { part } else { 0 }
    }

    /// The room of one message.
    pub(crate) fn room(self) -> usize {
        if self.longest <= LARGEST { SLOT } else { self.longest }
    }
}

/// Memory that programs can still have, in bytes: `MemAvailable` of proc_meminfo(5).
fn spare() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    kib.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// The depth of each queue, in work requests.
pub(crate) const DEPTH: u32 = 64;
/// Pieces of a work request.
const PIECES: u32 = 4;
/// Of devices that have few, and do not say so of every kind of queue pair.
const FEW_PIECES: u32 = 2;
/// Wished for; what the device gives is used.
const INLINE: u32 = 64;
/// Packet sequence numbers have 24 bits.
const PSN: u64 = 0xff_ffff;

/// How hard queue pairs try: set on each and shown, because the defaults of some libraries (no wait,
/// for ever) turn one missing receive into a stall without an error.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Tuning {
    /// 12 is 0.64 ms.
    pub min_rnr_timer: u8,
    pub rnr_retry: u8,
    /// 4.096 us times 2 to the power of this.
    pub timeout: u8,
    pub retry_cnt: u8,
}

pub(crate) const TUNING: Tuning =
    Tuning { min_rnr_timer: 12, rnr_retry: 6, timeout: 17, retry_cnt: 7 };

/// What a queue pair waits for before it repeats is between this and four times as much.
const ACKNOWLEDGED: Duration = Duration::from_nanos(4096);
/// What a machine that does other things, too, may be late.
const LATE: Duration = Duration::from_secs(3);
/// Longer than this nobody waits, whatever the queue pairs do.
const LONGEST: Duration = Duration::from_secs(600);

impl Tuning {
    /// After this long without an answer a queue pair has given up, or never does.
    pub(crate) fn gives_up_after(self) -> Duration {
        let once = ACKNOWLEDGED * 1_u32.checked_shl(self.timeout.into()).unwrap_or(u32::MAX) * 4;
        (once * (u32::from(self.retry_cnt) + 1) + LATE).min(LONGEST)
    }
}

/// Where a queue pair is, and the memory behind it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Place {
    pub(crate) qp_num: u32,
    pub(crate) psn: u32,
    pub(crate) gid: [u8; 16],
    pub(crate) lid: u16,
    pub(crate) mtu: u32,
    /// Of what peers may write to and read from.
    pub address: u64,
    pub(crate) rkey: u32,
    /// `max_inline_data`.
    pub(crate) inline: usize,
    /// The longest send, in bytes.
    pub(crate) message: usize,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) atomics: bool,
}

/// A session's queue pair.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) qp: Arc<QueuePair>,
    pub(crate) place: Place,
    pub(crate) sid: Sid,
}

/// A rail that is open.
#[derive(Debug)]
pub(crate) struct Hardware {
    pub rail: Rail,
    pub(crate) region: Region,
    /// One of each thread.
    queues: (CompletionQueue, Vec<CompletionQueue>),
    pub(crate) needs: Needs,
    /// The GID that peers are told.
    told: [u8; 16],
    context: Context,
    pd: Pd,
    limits: Limits,
    class: Class,
}

/// EPERM, EAGAIN and ENOMEM: by these a kernel refuses to lock memory.
const NO_MEMORY: [i32; 3] = [1, 11, 12];

/// The rails of a rank, of which some may not have opened.
#[derive(Debug, Default)]
pub(crate) struct Rails(Vec<Option<Arc<Hardware>>>);

impl Rails {
    pub(crate) fn new(rails: Vec<Option<Hardware>>) -> Self {
        Self(rails.into_iter().map(|rail| rail.map(Arc::new)).collect())
    }

    pub(crate) fn get(&self, rail: usize) -> Option<&Hardware> {
        self.0.get(rail)?.as_deref()
    }

    /// For a thread.
    pub(crate) fn share(&self, rail: usize) -> Option<Arc<Hardware>> {
        self.0.get(rail)?.clone()
    }

    /// All of them, also those that have not opened.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// From now on peers are told another address, which no preflight has seen.
    pub(crate) fn pretend(&mut self, another: impl Fn(Ipv6Addr) -> Ipv6Addr) {
        // Nobody shares them yet.
        for hardware in self.0.iter_mut().flatten().filter_map(Arc::get_mut) {
            hardware.told = another(hardware.told.into()).octets();
        }
    }

    /// Those that have opened, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Hardware)> {
        self.0.iter().enumerate().filter_map(|(index, rail)| Some((index, rail.as_deref()?)))
    }
}

impl Hardware {
    /// # Errors
    /// What the verb said, and what that means.
    pub(crate) fn new(
        rail: &Rail,
        context: &Context,
        peers: u32,
        class: Class,
        needs: Needs,
    ) -> Result<Self, (Cause, String)> {
        needs.fit(spare()).map_err(|why| (Cause::MemlockTooSmall, why))?;
        let open = || {
            let limits = context.limits()?;
            let pd = Pd::new(context)?;
            let region = Region::of(needs.kind, &pd, needs.memory(), access(&limits));
            // A device without RDMA write may still be read from; one without the queue pairs that are
            // asked for says so when they are made.
            let region = match region {
                Err(error) if !limits.atomics => {
                    Region::of(needs.kind, &pd, needs.memory(), Access::Read).map_err(|_| error)
                }
                region => region,
            }?;
            let entries = (peers.max(1) * needs.lanes * DEPTH * 2).min(limits.max_cqe);
            let queue = || match needs.events {
                true => CompletionQueue::with_events(context, entries),
                false => CompletionQueue::new(context, entries),
            };
            let rest = (1..needs.threads).map(|_| queue()).collect::<Result<_, _>>()?;
            let queues = (queue()?, rest);
            let context = context.clone();
            let (rail, told) = (rail.clone(), rail.gid_bytes());
            Ok(Self { rail, region, queues, needs, told, context, pd, limits, class })
        };
        open().map_err(|error: verbgate_verbs::Error| {
            let is_memory = error.errno().is_some_and(|errno| NO_MEMORY.contains(&errno));
            let cause = if is_memory { Cause::MemlockTooSmall } else { Cause::Failed };
            (cause, meaning(Of::RegMr, &error))
        })
    }

    /// Of all its queue pairs.
    pub(crate) fn traffic_class(&self) -> u8 {
        self.class.traffic
    }

    /// Reads and atomics at a time, of each queue pair.
    pub(crate) fn reads(&self) -> u8 {
        u8::try_from(self.limits.max_qp_rd_atom.min(4)).unwrap_or(1)
    }

    /// Memory that the rail's queue pairs may not use: of another protection domain.
    pub(crate) fn foreign(&self) -> Result<Region, verbgate_verbs::Error> {
        Region::new(&Pd::new(&self.context)?, MEMORY, access(&self.limits))
    }

    /// Where the completions of a path's queue pairs come.
    pub(crate) fn cq(&self, lane: usize) -> &CompletionQueue {
        let (first, rest) = &self.queues;
        match lane.checked_rem(rest.len() + 1) {
            Some(at @ 1..) => rest.get(at - 1).unwrap_or(first),
            _ => first,
        }
    }

    /// Takes what has completed, on whatever queue.
    pub(crate) fn poll(&self) -> Result<Vec<Completion>, verbgate_verbs::Error> {
        let mut all = self.queues.0.poll()?;
        for queue in &self.queues.1 {
            all.extend(queue.poll()?);
        }
        Ok(all)
    }

    /// A queue pair of a new session.
    pub(crate) fn make(&self, lane: usize) -> Result<Made, String> {
        let Self { rail, region, pd, limits, class, .. } = self;
        let cq = self.cq(lane);
        let pkey = class.pkey.map_or(Some(0), |pkey| rail.partition(pkey));
        let pkey = pkey.ok_or("the port does not have the partition key")?;
        let caps = Caps {
            send: DEPTH.min(limits.max_qp_wr),
            receive: DEPTH.min(limits.max_qp_wr),
            pieces: PIECES.min(limits.max_sge),
            inline: INLINE,
        };
        let small = Caps { inline: 0, ..caps };
        let transport = self.needs.transport;
        let few = Caps { pieces: caps.pieces.min(FEW_PIECES), ..caps };
        let make = |caps| QueuePair::new(pd, cq, caps, rail.port, pkey, transport);
        let qp = make(caps)
            .or_else(|_| make(small))
            .or_else(|_| make(few))
            .map_err(|error| error.to_string())?;
        let (read, write) = qp.rdma();
        let number =
            || random::unique().map_err(|error| format!("cannot read /dev/urandom: {error}"));
        let place = Place {
            qp_num: qp.number(),
            psn: u32::try_from(number()? & PSN).unwrap_or(0),
            gid: self.told,
            lid: rail.lid,
            mtu: rail.mtu,
            address: region.address() + u64::try_from(self.needs.at(TARGET)).unwrap_or(0),
            rkey: region.rkey(),
            inline: qp.inline(),
            message: match transport {
                Transport::Rc => LONGEST_MESSAGE,
                Transport::Ud | Transport::Srd => rail.datagram(),
            },
            read,
            write,
            atomics: limits.atomics && transport == Transport::Rc,
        };
        let qp = Arc::new(qp);
        Ok(Made { qp, place, sid: Sid(number()?) })
    }

    /// Connects a queue pair to a peer's.
    pub(crate) fn join(&self, made: &Made, tuning: Tuning, place: &Place) -> Result<(), String> {
        let path = Path {
            port: self.rail.port,
            sgid_index: u8::try_from(self.rail.gid_index).unwrap_or(u8::MAX),
            dgid: place.gid,
            dlid: place.lid,
            // As libraries do: within a subnet of InfiniBand LIDs lead everywhere, without 40 bytes more.
            global: !self.rail.is_infiniband()
                || place.lid == 0
                || place.gid.split_at(8).0 != self.told.split_at(8).0,
            traffic_class: self.class.traffic,
            service_level: self.class.level,
            qp_num: place.qp_num,
            psn: (place.psn, made.place.psn),
            mtu: place.mtu.min(self.rail.mtu),
            reads: self.reads(),
            min_rnr_timer: tuning.min_rnr_timer,
            rnr_retry: tuning.rnr_retry,
            timeout: tuning.timeout,
            retry_cnt: tuning.retry_cnt,
        };
        made.qp.connect(&path).map_err(|error| meaning(Of::Rtr, &error))
    }
}

/// As much as the device lets peers do with memory.
fn access(limits: &Limits) -> Access {
    if limits.atomics { Access::Remote } else { Access::ReadWrite }
}

/// An error with its likeliest cause and its remedy.
fn meaning(of: Of, error: &verbgate_verbs::Error) -> String {
    let entry = error.errno().and_then(|errno| explain::verb(of, errno));
    let verb = match of {
        Of::RegMr => "ibv_reg_mr",
        _ => "to RTR",
    };
    match entry.filter(|_| error.to_string().contains(verb)) {
        Some(entry) => {
            let causes = entry.causes.join("; or ");
            format!("{error}: {causes}: {}", entry.remedy)
        }
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_do_not_fit_into_memory_are_refused() {
        let needs = Needs { longest: LONGEST_MESSAGE, ..Needs::default() };
        assert!(needs.fit(spare()).is_ok() || spare().is_some_and(|all| all < 2 << 30));
        assert_eq!(needs.fit(Some(2 << 30)), Ok(()));
        assert_eq!(needs.fit(None), Ok(()));
        let error = needs.fit(Some(1 << 30)).unwrap_err();
        assert!(error.contains("1073741824 bytes") && error.contains("--sizes"), "{error}");
        assert!(spare().is_some_and(|all| all > 1 << 20));
    }
}
