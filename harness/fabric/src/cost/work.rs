//! The operations that are measured.

use std::time::Duration;
use std::time::Instant;

use verbgate_verbs::Access;
use verbgate_verbs::Caps;
use verbgate_verbs::Completion;
use verbgate_verbs::CompletionQueue;
use verbgate_verbs::Context;
use verbgate_verbs::Operation;
use verbgate_verbs::Path;
use verbgate_verbs::Pd;
use verbgate_verbs::Piece;
use verbgate_verbs::QueuePair;
use verbgate_verbs::Region;
use verbgate_verbs::Transport;

use super::Sample;
use super::Work;
use crate::error::Error;
use crate::rail::Rail;

const SMALL: usize = 8;
const LARGE: usize = 1 << 20;
/// How long a write to a port's own memory may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a completion is waited for at full speed: longer than any NIC takes. Where the kernel carries the data, as
/// Soft-RoCE does, it may need this processor.
const BUSY: Duration = Duration::from_millis(1);
/// `enum ibv_wc_status`.
const SUCCESS: u32 = 0;

/// Measures an operation this many times, and once before that.
///
/// What one makes is dropped within its time.
fn median<T>(
    work: &mut Work,
    operation: &str,
    turns: usize,
    mut once: impl FnMut() -> Result<T, Error>,
) -> Result<(), Error> {
    drop(once()?);
    let mut took = Vec::with_capacity(turns);
    for _ in 0..turns {
        let begun = Instant::now();
        drop(once()?);
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    let nanoseconds = took.get(turns / 2).map_or(0, Duration::as_nanos);
    let nanoseconds = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
    work.samples.push(Sample { operation: operation.to_owned(), nanoseconds });
    Ok(())
}

/// All of them; those with data only where the port can carry any.
pub(super) fn all(rail: &Rail) -> Result<Work, Error> {
    let mut work = Work::default();
    objects(rail, &mut work)?;
    if !rail.active {
        work.no_data = Some(format!("port {} of {} is not active", rail.port, rail.device));
    } else if let Err(error) = data(rail, &mut work) {
        work.no_data = Some(error.to_string());
    }
    Ok(work)
}

fn objects(rail: &Rail, work: &mut Work) -> Result<(), Error> {
    median(work, "open and close the device", 15, || Ok(Context::open(&rail.device)?))?;
    let context = Context::open(&rail.device)?;
    median(work, "query the port", 100, || Ok(context.port(rail.port)?))?;
    median(work, "protection domain", 100, || Ok(Pd::new(&context)?))?;
    median(work, "completion queue of 256", 100, || Ok(CompletionQueue::new(&context, 256)?))?;
    let pd = Pd::new(&context)?;
    for (operation, length, turns) in
        [("region of 4 KiB", 4096, 100), ("region of 16 MiB", 16 << 20, 10)]
    {
        median(work, operation, turns, || Ok(Region::new(&pd, length, Access::Remote)?))?;
    }
    let cq = CompletionQueue::new(&context, 256)?;
    median(work, "queue pair", 50, || queue_pair(&pd, &cq, rail))?;
    median(work, "queue pair, connected", 50, || connected(&pd, &cq, rail))
}

fn queue_pair(pd: &Pd, cq: &CompletionQueue, rail: &Rail) -> Result<QueuePair, Error> {
    let caps = Caps { send: 16, receive: 1, pieces: 1, inline: 0 };
    Ok(QueuePair::new(pd, cq, caps, rail.port, 0, Transport::Rc)?)
}

/// A queue pair that speaks to itself.
fn connected(pd: &Pd, cq: &CompletionQueue, rail: &Rail) -> Result<QueuePair, Error> {
    let qp = queue_pair(pd, cq, rail)?;
    qp.connect(&Path {
        port: rail.port,
        sgid_index: u8::try_from(rail.gid_index).unwrap_or(u8::MAX),
        dgid: rail.gid_bytes(),
        dlid: rail.lid,
        global: true,
        traffic_class: 0,
        service_level: 0,
        qp_num: qp.number(),
        psn: (1, 1),
        mtu: rail.mtu,
        reads: 1,
        min_rnr_timer: 12,
        rnr_retry: 7,
        timeout: 14,
        retry_cnt: 7,
    })?;
    Ok(qp)
}

fn data(rail: &Rail, work: &mut Work) -> Result<(), Error> {
    let context = Context::open(&rail.device)?;
    let (pd, cq) = (Pd::new(&context)?, CompletionQueue::new(&context, 256)?);
    let qp = connected(&pd, &cq, rail)?;
    let from = Region::new(&pd, LARGE, Access::Local)?;
    let to = Region::new(&pd, LARGE, Access::Remote)?;
    for (operation, length, turns) in
        [("write of 8 bytes", SMALL, 500), ("write of 1 MiB", LARGE, 20)]
    {
        median(work, operation, turns, || {
            let there = Operation::Write(to.address(), to.rkey());
            qp.post_send(1, there, &[Piece { region: &from, offset: 0, length }], true, false)?;
            completed(&cq)
        })?;
    }
    Ok(())
}

fn completed(cq: &CompletionQueue) -> Result<(), Error> {
    let begun = Instant::now();
    let mut one = [Completion::default()];
    loop {
        if cq.poll_into(&mut one)? > 0 {
            let [Completion { status, .. }] = one;
            return match status {
                SUCCESS => Ok(()),
                status => Err(Error::Check(format!(
                    "a write to the port's own memory ended with status {status}: `verbgate \
                     explain {status}` says what that means"
                ))),
            };
        }
        let waited = begun.elapsed();
        if waited > BUSY {
            std::thread::yield_now();
        }
        if waited > PATIENCE {
            return Err(Error::Check(
                "a write to the port's own memory does not complete: the port may not carry \
                 traffic to itself"
                    .to_owned(),
            ));
        }
    }
}
