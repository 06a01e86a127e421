//! The cost of a container under `verbgate oci`, beyond the runtime alone.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde_json::Value;

use super::median;
use crate::bundle;
use crate::bundle::Container;
use crate::exec;
use crate::exec::Program;
use crate::table::Table;

/// Containers of each kind, by turns, so that a busy machine disturbs all alike.
const RUNS: usize = 21;
/// The device that stands for an RDMA device.
const GRANT: &str = "uverbs9=/dev/null";
const DEVICE: &str = "uverbs9";
/// Debian's crun refuses to run where version 2 of cgroups is mounted beside version 1.
const WITHOUT_UNIFIED: &str =
    "if [ -d /sys/fs/cgroup/unified ]; then umount /sys/fs/cgroup/unified; fi; exec \"$@\"";
/// Where a container finds the programs of this workspace.
const PROGRAMS: &str = "/opt";

/// Prints the table; `verbgate` is the program, with `verbgate-guest` beside it.
pub fn run(verbgate: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        println!("containers are left out: they need root");
        return Ok(());
    }
    let mut table = Table::new(&["containers: medians of 21", "crun", "runc"]);
    let both = ["crun", "runc"].map(|runtime| measure(verbgate, runtime));
    let [crun, runc] = both.map(|result| {
        result.unwrap_or_else(|why| {
            println!("left out: {why:#}");
            Figures::NONE
        })
    });
    let mut add = |what: &str, unit: &str, of: fn(&Figures) -> f64| {
        let cells = [&crun, &runc].map(|figures| format!("{:.1}{unit}", of(figures)));
        table.row(&[&[what.to_owned()], &cells[..]].concat());
    };
    add("`run` of `true` by the runtime alone", " ms", |f| f.bare);
    add("`verbgate oci` run of `true`", " ms", |f| f.wrapped);
    add("the same, passed on without RDMA", " ms", |f| f.passed_on);
    add("RDMA's cost", " ms", |f| f.wrapped - f.bare);
    add("ratio", "", |f| f.wrapped / f.bare);
    add("most resident memory of its supervisor, 20,000 requests", " MiB", |f| f.resident);
    println!("{table}");
    Ok(())
}

/// Milliseconds of a container of crun's with RDMA, of so many; none where crun cannot run one.
pub(super) fn start(verbgate: &Path, count: usize) -> Result<Option<f64>> {
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let scene = Scene { verbgate, runtime: "crun", dir };
    if time(&scene.container(scene.bare(), &["true"])?).is_err() {
        return Ok(None);
    }
    let container = scene.container(scene.wrapped(), &["true"])?;
    let times: Result<Vec<f64>> = (0..count).map(|_| time(&container)).collect();
    Ok(median(&mut times?))
}

/// Milliseconds, and MiB.
#[derive(Debug)]
struct Figures {
    bare: f64,
    wrapped: f64,
    passed_on: f64,
    resident: f64,
}

impl Figures {
    const NONE: Self =
        Self { bare: f64::NAN, wrapped: f64::NAN, passed_on: f64::NAN, resident: f64::NAN };
}

/// A root directory of its own, and how programs are called.
struct Scene<'a> {
    verbgate: &'a Path,
    runtime: &'static str,
    dir: tempfile::TempDir,
}

impl Scene<'_> {
    fn enter(&self) -> Vec<OsString> {
        ["unshare", "--mount", "sh", "-c", WITHOUT_UNIFIED, "sh"].map(Into::into).to_vec()
    }

    fn verbgate(&self) -> Vec<OsString> {
        vec![self.verbgate.into(), "--root".into(), self.dir.path().into()]
    }

    fn bare(&self) -> Vec<OsString> {
        [self.enter(), vec![self.runtime.into()]].concat()
    }

    fn wrapped(&self) -> Vec<OsString> {
        let words = ["oci", "--stand-in", GRANT, "--runtime", self.runtime].map(Into::into);
        [self.enter(), self.verbgate(), words.to_vec()].concat()
    }

    fn container(&self, wrapper: Vec<OsString>, argv: &[&str]) -> Result<Container> {
        let id = format!("verbgate-bench-{}", std::process::id());
        Container::under(wrapper, DEVICE, &id, argv)
    }
}

fn measure(verbgate: &Path, runtime: &'static str) -> Result<Figures> {
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let scene = Scene { verbgate, runtime, dir };
    let bare = scene.container(scene.bare(), &["true"])?;
    let passed_on = scene.container(scene.wrapped(), &["true"])?;
    passed_on.add("", "annotations", Value::Object(serde_json::Map::new()))?;
    let wrapped = scene.container(scene.wrapped(), &["true"])?;
    // Whether it can be run here at all.
    time(&bare).with_context(|| format!("{runtime} cannot run a container here"))?;
    let [mut first, mut second, mut third] = [const { Vec::new() }; 3];
    for _ in 0..RUNS {
        first.push(time(&bare)?);
        second.push(time(&wrapped)?);
        third.push(time(&passed_on)?);
    }
    let of = |mut values: Vec<f64>| median(&mut values).unwrap_or(f64::NAN);
    Ok(Figures {
        bare: of(first),
        wrapped: of(second),
        passed_on: of(third),
        resident: resident(&scene)?,
    })
}

/// Milliseconds of a whole container.
fn time(container: &Container) -> Result<f64> {
    let start = Instant::now();
    let output = container.run().output().context("cannot start a program")?;
    let took = start.elapsed();
    if !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(took.as_secs_f64() * 1000.0)
}

/// The most that the supervisor of a busy container holds, in MiB.
fn resident(scene: &Scene<'_>) -> Result<f64> {
    let guest = format!("{PROGRAMS}/verbgate-guest");
    let argv = [guest.as_str(), "requests", "/dev/infiniband/uverbs9", "20000"];
    let container = scene.container(scene.wrapped(), &argv)?;
    let programs = scene.verbgate.parent().context("verbgate is in no folder")?;
    let mut mount = bundle::bind(&programs.to_string_lossy());
    if let Some(mount) = mount.as_object_mut() {
        mount.insert("destination".to_owned(), PROGRAMS.into());
    }
    container.add("/mounts", "-", mount)?;
    let mut program = Program::start(container.run())?;
    let mut most = 0;
    let mut supervisor = None;
    while !program.has_ended()? {
        if supervisor.is_none() {
            supervisor = ask(scene)?;
        }
        if let Some(pid) = supervisor {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            most = most.max(super::host::kib(&status, "VmHWM:"));
        }
        thread::sleep(exec::TICK);
    }
    program.wait()?.expect_status(0)?;
    let kib = u32::try_from(most)?;
    if kib == 0 {
        bail!("the supervisor was not seen");
    }
    Ok(f64::from(kib) / 1024.0)
}

/// The supervisor's process.
fn ask(scene: &Scene<'_>) -> Result<Option<u64>> {
    let words = scene.verbgate();
    let (program, words) = words.split_first().context("no words")?;
    let mut ps = Command::new(program);
    ps.args(words).args(["ps", "--json"]);
    let shown: Value = serde_json::from_str(&exec::run(ps)?.stdout)?;
    Ok(shown.pointer("/0/supervisor").and_then(Value::as_u64))
}
