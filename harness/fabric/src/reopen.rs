//! Simultaneous opens: all ranks connect to all and close again, many times, each at its own time.
//! No queue pair may be left over, by this program's count and by the kernel's.

use std::thread;
use std::time::Duration;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::Rng as _;
use rand_xoshiro::rand_core::SeedableRng as _;
use serde::Serialize;

use crate::connect::Mesh;
use crate::error::Error;
use crate::options::Identity;
use crate::random;
use crate::rendezvous::Link;

/// The longest random delay before an open.
const DELAY_MS: u64 = 50;
/// How often the kernel is asked to count.
const COUNTED: u32 = 20;

/// What came of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Reopened {
    pub times: u32,
    /// What the delays of all ranks were made of: the same seed makes them again.
    pub seed: u64,
    /// How often the kernel was asked, and had as many queue pairs as there were connections while
    /// they were open, and none when they were closed. None: it does not tell here.
    pub(crate) counted: Option<u32>,
}

/// Opens and closes so many times. All ranks have the same seed: the one that rank 0 was given, or
/// has drawn.
pub(crate) fn run(
    times: u32,
    seed: Option<u64>,
    me: &Identity,
    mesh: &mut Mesh,
    link: &mut Link,
) -> Result<Reopened, Error> {
    let drawn =
        random::unique().map_err(|e| Error::Io { what: "/dev/urandom".into(), error: e })?;
    let seeds = link.gather_quietly("seed", &seed.unwrap_or(drawn), me.patience)?;
    let seed = seeds.get(&0).copied().unwrap_or(drawn);
    let mut delays = SplitMix64::seed_from_u64(seed ^ u64::from(me.rank) << 32);
    let mut counted = Some(0);
    for round in 0..times {
        thread::sleep(Duration::from_millis(delays.next_u64() % DELAY_MS));
        mesh.connect(link, &format!("connect {round}"), me.patience)?;
        let last = round + 1 == times;
        let look = counted.is_some() && (round % COUNTED == 0 || last);
        let open = look.then(of_this_process).flatten();
        close(me, mesh, link, &format!("close {round}"))?;
        if look {
            let left = of_this_process();
            counted = match (open, left) {
                // Somebody who does not see them at all can say nothing of their end.
                (Some(open), Some(left)) if open == mesh.peers.len() => {
                    none_left(left, me.rank, "by the kernel's count, ")?;
                    counted.map(|count| count + 1)
                }
                _ => None,
            };
        }
    }
    Ok(Reopened { times, seed, counted })
}

/// Closes all, after which there may be no queue pair.
pub(crate) fn close(
    me: &Identity,
    mesh: &mut Mesh,
    link: &mut Link,
    stage: &str,
) -> Result<(), Error> {
    none_left(mesh.close(link, stage, me.patience)?, me.rank, "")
}

fn none_left(left: usize, rank: u32, by: &str) -> Result<(), Error> {
    match left {
        0 => Ok(()),
        _ => Err(Error::Check(format!("{by}rank {rank} has {left} queue pairs left over"))),
    }
}

/// This process's queue pairs, as the kernel counts them; nothing where it does not tell, as in a
/// sandbox.
fn of_this_process() -> Option<usize> {
    verbgate_host::rdma::queue_pairs(std::process::id()).ok()
}
