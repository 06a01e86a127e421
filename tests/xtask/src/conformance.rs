//! `cargo xtask conformance`: rdma-core's own test suite, natively and then through Verbgate, in
//! one boot of the lab. What counts is the sets of tests that pass: a test that passes natively
//! and not through Verbgate is lost.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde::Deserialize;
use verbgate_lab::Arch;
use verbgate_lab::Kernel;
use verbgate_lab::Lab;
use verbgate_lab::Nic;
use verbgate_lab::Progress;
use verbgate_lab::RunSpec;
use verbgate_lab::Userland;

use crate::guestbin;
use crate::guestbin::Profile;
use crate::host::target_directory;

/// Runs in the guest.
const DRIVER: &str = include_str!("../../scripts/conformance.py");
/// One half after the other: the driver goes on after tests that hang and crash, so a status other
/// than 0 is a half that could not be run.
const SCRIPT: &str = r#"set -e
cp /lab/conformance.py /lab/verbgate /tmp
echo "natively"
python3 /tmp/conformance.py drive /lab/native "$PATIENCE" --only "$@"
echo "through verbgate"
python3 /tmp/conformance.py drive /lab/proxied "$PATIENCE" --only "$@" -- \
    /tmp/verbgate run --profile "$PROFILE" --keep-cap NET_RAW --keep-cap NET_ADMIN --device "$DEVICE" --"#;
/// The lab's device, where no NIC is asked for; a NIC's is the first of its driver.
const DEVICE: &str = "rxe0";
/// A half takes two minutes on a quiet machine; every hang adds its patience, twice.
const LIMIT: Duration = Duration::from_secs(40 * 60);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kernel: 6.1, 6.12, 7.2, uml-7.2 or arm64-6.12.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Userland: bookworm, trixie, sid or arm64-trixie; the tests come from the userland's rdma-core. [default: the
    /// kernel's own]
    #[arg(long)]
    userland: Option<String>,
    /// Model of a NIC to run the suite on: efa, erdma or mlx5. [default: Soft-RoCE]
    #[arg(long, value_name = "MODEL")]
    nic: Option<String>,
    /// Profile of requests that the tests may make.
    #[arg(long, default_value = "full")]
    profile: String,
    /// Seconds that one test may take before it counts as hanging.
    #[arg(long, default_value_t = 60, value_name = "S")]
    patience: u32,
    /// Part of a name: run only the tests whose names hold WORD; may be repeated.
    #[arg(long = "test", value_name = "WORD")]
    tests: Vec<String>,
}

/// How one test ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
struct Ending {
    /// `ok`, `skipped`, `failed`, `error`, `hung` or `crashed`.
    outcome: String,
    /// The reason, or the last line of the error.
    why: String,
}

/// A line of the records: the start or the end of a test.
#[derive(Debug, Deserialize)]
struct Event {
    test: String,
    #[serde(flatten)]
    ending: Option<Ending>,
}

/// Objects of the device by kind, as `rdma resource show` says.
type Objects = BTreeMap<String, u64>;

#[derive(Debug, Deserialize)]
struct Counts {
    before: Objects,
    after: Objects,
}

/// What a half of the run brought.
#[derive(Debug)]
struct Half {
    tests: BTreeMap<String, Ending>,
    counts: Counts,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let kernel = Kernel::find(&args.kernel)?;
    let userland = match &args.userland {
        Some(name) => Userland::find(name)?,
        None => kernel.default_userland()?,
    };
    let nic = args.nic.as_deref().map(Nic::find).transpose()?;
    let model = args.nic.as_deref().unwrap_or("rxe");
    let device = args.nic.as_ref().map_or_else(|| DEVICE.to_owned(), |nic| format!("{nic}_0"));
    let folder = share(&format!("{}-{}-{model}", kernel.name, userland.name), kernel.arch)?;
    let mut lab = Lab::prepare(kernel, userland, &Progress::stderr())?;
    let shell = ["/bin/sh", "-c", SCRIPT, "sh"];
    let argv = shell.into_iter().chain(args.tests.iter().map(String::as_str));
    let mut spec = RunSpec::new(argv)
        .share(&folder)
        .timeout(LIMIT)
        .env("DEVICE", device)
        .env("PROFILE", &args.profile)
        .env("PATIENCE", args.patience.to_string());
    if let Some(nic) = nic {
        lab.prepare_nics(&Progress::stderr())?;
        // Some tests have an end on each.
        spec = spec.nics(&[nic, nic]).without_rdma();
    }
    let status = lab.run(&spec, &mut std::io::stderr().lock())?.status;
    if status != 0 {
        bail!(
            "the suite could not be run on Linux {} with {} (status {status}); the suite's logs \
             are in {}",
            kernel.name,
            userland.name,
            folder.display()
        );
    }
    let native = Half::read(&folder.join("native"))?;
    let proxied = Half::read(&folder.join("proxied"))?;
    println!(
        "Linux {}, {} (rdma-core {}), {model}, profile {}",
        kernel.name, userland.name, userland.rdma_core, args.profile
    );
    native.describe("natively");
    proxied.describe("through verbgate");
    let leaks = native.counts.leak("natively") | proxied.counts.leak("through verbgate");
    let comparison = Comparison::of(&native, &proxied);
    comparison.print(&native, &proxied, &folder);
    println!("{}", comparison.closing());
    let good = comparison.lost.is_empty() && !leaks;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A fresh folder to share with the guest, with what it runs; afterwards it has the logs.
fn share(name: &str, arch: Arch) -> Result<PathBuf> {
    let folder = target_directory()?.join("conformance").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove the last run's {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let built = guestbin::build(arch, Profile::Release, &["verbgate"])?;
    let verbgate = built.get("verbgate").context("cargo built no verbgate")?;
    fs::copy(verbgate, folder.join("verbgate"))
        .with_context(|| format!("cannot copy {}", verbgate.display()))?;
    fs::write(folder.join("conformance.py"), DRIVER)
        .with_context(|| format!("cannot write to {}", folder.display()))?;
    Ok(folder)
}

impl Half {
    fn read(folder: &Path) -> Result<Self> {
        let records = read(&folder.join("records.jsonl"))?;
        let counts = read(&folder.join("counts.json"))?;
        let counts = serde_json::from_str(&counts)
            .with_context(|| format!("{}/counts.json", folder.display()))?;
        let tests =
            endings(&records).with_context(|| format!("{}/records.jsonl", folder.display()))?;
        Ok(Self { tests, counts })
    }

    fn passed(&self) -> BTreeSet<&str> {
        let passed = self.tests.iter().filter(|(_, ending)| ending.outcome == "ok");
        passed.map(|(name, _)| name.as_str()).collect()
    }

    fn how(&self, test: &str) -> String {
        match self.tests.get(test) {
            None => "did not run".to_owned(),
            Some(Ending { outcome, why }) if why.is_empty() => outcome.clone(),
            Some(Ending { outcome, why }) => {
                format!("{outcome}: {}", why.lines().next().unwrap_or_default())
            }
        }
    }

    fn describe(&self, how: &str) {
        let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
        for ending in self.tests.values() {
            *outcomes.entry(&ending.outcome).or_default() += 1;
        }
        let outcomes: Vec<_> = outcomes.iter().map(|(what, n)| format!("{n} {what}")).collect();
        println!("{how}: {} tests, {}", self.tests.len(), outcomes.join(", "));
        println!("    objects before: {}", list(&self.counts.before));
        println!("    objects after:  {}", list(&self.counts.after));
    }
}

impl Counts {
    /// Says whether the kernel still has what the suite made, and complains.
    fn leak(&self, how: &str) -> bool {
        let leak = self.before != self.after;
        if leak {
            println!("LEAKED {how}: the objects are not as they were before");
        }
        leak
    }
}

fn list(objects: &Objects) -> String {
    let each: Vec<_> = objects.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    each.join(" ")
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path)
        .with_context(|| format!("the guest left no readable {}", path.display()))
}

/// How each test ended; of two tries, the last one counts.
fn endings(records: &str) -> Result<BTreeMap<String, Ending>> {
    let mut tests = BTreeMap::new();
    for line in records.lines() {
        let event: Event =
            serde_json::from_str(line).with_context(|| format!("not a record: {line}"))?;
        if let Some(ending) = event.ending {
            tests.insert(event.test, ending);
        }
    }
    Ok(tests)
}

/// Two halves, by the names of tests that passed.
#[derive(Debug, Default, PartialEq)]
struct Comparison {
    native: usize,
    proxied: usize,
    lost: Vec<String>,
    gained: Vec<String>,
}

impl Comparison {
    fn of(native: &Half, proxied: &Half) -> Self {
        let (native, proxied) = (native.passed(), proxied.passed());
        let names = |a: &BTreeSet<&str>, b: &BTreeSet<&str>| {
            a.difference(b).map(|name| (*name).to_owned()).collect()
        };
        Self {
            native: native.len(),
            proxied: proxied.len(),
            lost: names(&native, &proxied),
            gained: names(&proxied, &native),
        }
    }

    fn print(&self, native: &Half, proxied: &Half, folder: &Path) {
        for test in &self.lost {
            println!("lost    {test}\n        {}", proxied.how(test));
        }
        for test in &self.gained {
            println!("gained  {test}\n        natively {}", native.how(test));
        }
        if !self.lost.is_empty() {
            println!("what they said: {}", folder.join("proxied/log").display());
        }
    }

    fn closing(&self) -> String {
        format!(
            "conformance: {} passed natively, {} proxied, {} lost",
            self.native,
            self.proxied,
            self.lost.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(records: &str) -> Half {
        let counts = Counts { before: Objects::new(), after: Objects::new() };
        Half { tests: endings(records).unwrap(), counts }
    }

    const NATIVE: &str = r#"{"event":"start","test":"t.A.a","at":1.0}
{"event":"end","test":"t.A.a","outcome":"ok","why":"","at":2.0}
{"event":"start","test":"t.A.b","at":1.0}
{"event":"end","test":"t.A.b","outcome":"crashed","why":"-11","at":2.0}
{"event":"start","test":"t.A.b","at":3.0}
{"event":"end","test":"t.A.b","outcome":"ok","why":"","at":4.0}
{"event":"end","test":"t.A.c","outcome":"failed","why":"no\nluck","at":4.0}"#;

    #[test]
    fn sets_are_compared_not_numbers() {
        let native = half(NATIVE);
        let proxied = half(
            r#"{"event":"end","test":"t.A.c","outcome":"ok","why":""}
{"event":"end","test":"t.A.b","outcome":"ok","why":""}"#,
        );
        let comparison = Comparison::of(&native, &proxied);
        assert_eq!(comparison.lost, ["t.A.a"]);
        assert_eq!(comparison.gained, ["t.A.c"]);
        assert_eq!(comparison.closing(), "conformance: 2 passed natively, 2 proxied, 1 lost");
        assert_eq!(proxied.how("t.A.a"), "did not run");
        assert_eq!(native.how("t.A.c"), "failed: no");
    }

    #[test]
    fn objects_that_stay_are_a_leak() {
        let objects = |n| Objects::from([("qp".to_owned(), n)]);
        let counts = |after| Counts { before: objects(1), after: objects(after) };
        assert!(counts(2).leak("x"));
        assert!(!counts(1).leak("x"));
        assert_eq!(list(&objects(1)), "qp 1");
    }
}
