//! Two machines of the lab whose NICs are on one wire: programs of one kernel speak RDMA to those of another,
//! natively and in sandboxes.

use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use verbgate_lab::Kernel;
use verbgate_lab::Limit;
use verbgate_lab::MachineDied;
use verbgate_lab::Network;
use verbgate_lab::Nic;

use crate::guest::Lines;
use crate::guest::Missing;
use crate::guest::Programs;

/// How long a machine may say nothing: booting, and waiting for the other machine.
const LIMIT: Limit = Limit::Silence(Duration::from_secs(5 * 60));

/// A case: what both machines run, in `$how` natively or in a sandbox, with `$rank`, the rank's device
/// `$dev`, the first machine's address `$at`, and a port `$port` that nobody else has.
struct Pair {
    name: &'static str,
    nic: Nic,
    script: &'static str,
}

const VERIFY: &str = "$how verbgate fabric verify --rendezvous $at:$port --rank $rank --ranks 2 \
                      --timeout 120 --device $dev";
const VERIFY_SRD: &str = "$how verbgate fabric verify --transport srd --rendezvous $at:$port \
                          --rank $rank --ranks 2 --timeout 120 --device $dev";
/// Old drivers of ERDMAs are connected by rdma_cm alone. These are the addresses of the two machines' cards.
const RPING: &str = "if [ $rank = 0 ]; then $how timeout 200 rping -s -a 10.98.0.1 -p $port -C 10; \
                     else tries=0; until $how timeout 60 rping -c -a 10.98.0.1 -I 10.98.0.17 -p $port -C 10 -V; \
                     do tries=$((tries + 1)); [ $tries -lt 60 ]; sleep 1; done; fi";

const PAIRS: &[Pair] = &[
    Pair { name: "two_machines_efa", nic: Nic::Efa, script: VERIFY_SRD },
    Pair { name: "two_machines_erdma", nic: Nic::Erdma, script: RPING },
    Pair { name: "two_machines_mlx5", nic: Nic::Mlx5, script: VERIFY },
];

/// Runs a case by name.
pub(crate) fn run(programs: &Programs, kernel: &'static Kernel, name: &str) -> Result<()> {
    let pair = PAIRS.iter().find(|pair| pair.name == name).context("there is no such pair")?;
    both(programs, kernel, pair)
}

/// Boots both machines, and has each run its part.
fn both(programs: &Programs, kernel: &'static Kernel, pair: &Pair) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lab = Programs::lab_for(kernel, &[pair.nic]).context(Missing)?;
    let at = Network::new(folder.path(), 1)?.address();
    let part = |place: u16| -> Result<()> {
        let rank = place - 1;
        let script = format!(
            "set -e; rank={rank} at={at} dev=$(ls /sys/class/infiniband | head -n 1) port=7000; \
             for how in '' \"verbgate run --device $dev --\"; do port=$((port + 1)); {}; done",
            pair.script
        );
        let network = Network::new(folder.path(), place)?;
        let mut said = String::new();
        let mut output = Lines::new(|line| {
            said.push_str(line);
            said.push('\n');
        });
        let spec = programs.spec_on(&["sh", "-c", &script], LIMIT, &[pair.nic], network);
        let status = lab.run(&spec, &mut output)?.status;
        drop(output);
        if status != 0 {
            bail!("machine {place} ended with status {status}:\n{said}");
        }
        Ok(())
    };
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| part(2));
        (part(1), second.join())
    });
    let second = second.unwrap_or_else(|_| Err(anyhow!("the second machine's thread panicked")));
    // When one machine has died, the other one's failure follows from that.
    match (first, second) {
        (Err(first), Err(second)) if second.is::<MachineDied>() && !first.is::<MachineDied>() => {
            Err(second)
        }
        (first, second) => first.and(second),
    }
}
