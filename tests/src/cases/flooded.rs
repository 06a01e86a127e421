//! A tenant that takes of everything until refused, as fast as it can, and a neighbour who goes on: what the
//! neighbour waits, and what the flood costs the host beyond the tenant's control group.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::tenants::Partner;
use crate::exec;
use crate::world::World;

/// The flooding tenant's bounds. A request takes milliseconds under emulation, a hundred times what it takes
/// otherwise: so many a second are a tenth of one processor here.
const POLICY: &str = "version = 1
[tenant.flood]
match.uid = 0
profile = \"standard\"
devices = [{ name = \"*\" }]
[tenant.flood.rules]
quota = { ucontexts = 4, pd = 64, mr = 64, mr_bytes = 67108864, cq = 16, cqe = 16384, ah = 64, cm_ids = 32, multicast = 8 }
rate = { per_s = 20, burst = 100 }
";
/// How long a flood lasts, in seconds of the machine.
const SECONDS: u64 = 8;
/// Turns of the neighbour beside a flood.
const TURNS: u32 = 300;
/// What a flood may take of the host's memory beyond the tenant's control group, in KiB.
const OUTSIDE_KIB: u64 = 16 << 10;
const GROUP: &str = "/sys/fs/cgroup/verbgate-flood";

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("tenant_floods_and_costs_nobody_else", |world| {
        let flood = run(world, 1)?;
        println!("  {flood}");
        if flood.groups == 0 {
            bail!("the flood has joined no multicast group: {flood}");
        }
        if flood.refused == 0 {
            bail!("the flood has met no bound: {flood}");
        }
        match flood.outside_kib {
            None => println!("  its control group counts no memory"),
            Some(outside) if outside > OUTSIDE_KIB => {
                bail!(
                    "{outside} KiB are gone that no control group of the tenant's counts: {flood}"
                )
            }
            Some(_) => {}
        }
        Ok(Verdict::Ok)
    })]
}

/// What the neighbour and the host saw.
#[derive(Debug, Default)]
pub(crate) struct Flood {
    /// The 99th of a hundred turns of the neighbour, in microseconds, a round each.
    pub(crate) alone: Vec<f64>,
    /// Beside the flood.
    pub(crate) beside: Vec<f64>,
    pub(crate) refused: u64,
    /// Multicast groups that the flood has joined.
    pub(crate) groups: u64,
    /// The host's memory that is gone in the end, less what the tenant's control group counts.
    pub(crate) outside_kib: Option<u64>,
}

impl std::fmt::Display for Flood {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { alone, beside, refused, groups, outside_kib } = self;
        write!(
            f,
            "p99 of a neighbour's turns: {alone:.0?} us alone, {beside:.0?} us beside a flood; {refused} \
             requests of the flood refused, {groups} groups joined; {} KiB taken outside of its control group",
            outside_kib.map_or_else(|| "?".to_owned(), |kib| kib.to_string())
        )
    }
}

/// The flooding tenant's control group, removed with this.
struct Group {
    procs: PathBuf,
    /// What it uses of memory, where the kernel counts that.
    usage: Option<PathBuf>,
}

impl Group {
    fn new() -> Result<Self> {
        // Refused where a group of version 1 has the controller.
        let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
        fs::create_dir_all(GROUP).context("cannot make a control group")?;
        let group = PathBuf::from(GROUP);
        let usage = group.join("memory.current");
        Ok(Self { procs: group.join("cgroup.procs"), usage: usage.exists().then_some(usage) })
    }

    fn kib(&self) -> Result<Option<u64>> {
        let Some(usage) = &self.usage else { return Ok(None) };
        Ok(Some(fs::read_to_string(usage)?.trim().parse::<u64>()? >> 10))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes were killed, and are gone a moment later.
        let gone = || Ok(fs::read_to_string(&self.procs)?.is_empty());
        let _ = exec::wait_until("the flood's processes to end", gone);
        let _ = fs::remove_dir(GROUP);
    }
}

/// So many rounds of a neighbour alone, and beside a flood.
pub(crate) fn run(world: &World, rounds: usize) -> Result<Flood> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let policies = folder.path().join("policy.d");
    fs::create_dir(&policies)?;
    fs::write(policies.join("flood.toml"), POLICY)?;
    let policies = policies.to_str().context("an odd path")?.to_owned();
    let group = Group::new()?;
    let guest = world.beside("verbgate-guest").to_string_lossy().into_owned();
    let device = world.node_path();
    // By the address that the connection manager knows the device by.
    let gid = format!("::ffff:{}", world.address()?);
    let argv = [guest.as_str(), "neighbour", &device, &gid, "0"];

    let mut neighbour =
        Partner::start(&folder.path().join("neighbour"), &world.sandbox(&[], &argv))?;
    neighbour.hear()?;
    let mut spin = || -> Result<f64> {
        let said = neighbour.ask(&format!("spin {TURNS}"))?;
        let p99 = said.rsplit(' ').next().and_then(|word| word.parse().ok());
        p99.with_context(|| format!("an odd answer: {said:?}"))
    };
    // The first ones plant, and load what is loaded once.
    spin()?;
    let (before, none) = (available_kib()?, group.kib()?);

    let inner = world.sandbox(&["--policy-dir", &policies], &argv);
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(&group.procs);
    command.arg(inner.get_program()).args(inner.get_args());
    let mut tenant = Partner::start(&folder.path().join("flood"), &command)?;
    tenant.hear()?;
    let mut flood = Flood::default();
    for _ in 0..rounds {
        flood.alone.push(spin()?);
        tenant.tell(&format!("flood {SECONDS}"))?;
        // Until the burst is used up.
        std::thread::sleep(Duration::from_secs(1));
        flood.beside.push(spin()?);
        let said = tenant.hear()?;
        let words: Vec<&str> = said.split(' ').collect();
        let after = |key: &str| {
            let at = words.iter().position(|word| *word == key);
            let count = at.and_then(|at| words.get(at + 1)?.parse::<u64>().ok());
            count.with_context(|| format!("an odd answer: {said:?}"))
        };
        flood.refused += after("refused")?;
        flood.groups += after("groups")?;
    }
    let gone = before.saturating_sub(available_kib()?);
    let counted = group.kib()?.zip(none).map(|(now, none)| now.saturating_sub(none));
    flood.outside_kib = counted.map(|counted| gone.saturating_sub(counted));
    drop(tenant);
    Ok(flood)
}

/// What the host could give to a program.
fn available_kib() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let line = line.context("no MemAvailable in /proc/meminfo")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
