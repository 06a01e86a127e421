//! Between the command and the proxy: the filter that a guest gets, and its supervisor.

use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::panic;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use anyhow::anyhow;
use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use serde_json::json;
use verbgate_abi::Errno;
use verbgate_proxy::Config;
use verbgate_proxy::Device;
use verbgate_proxy::Siblings;
use verbgate_proxy::Supervisor;
use verbgate_proxy::Watched;
use verbgate_proxy::device;
use verbgate_proxy::device::Kind;
use verbgate_proxy::index_of;
use verbgate_proxy::observe;
use verbgate_proxy::observe::Counts;
use verbgate_proxy::observe::Done;
use verbgate_proxy::observe::Observer;
use verbgate_proxy::policy::Policy;
use verbgate_sys::GuestFd;
use verbgate_sys::Tgid;
use verbgate_sys::Tid;
use verbgate_sys::arch::Native;
use verbgate_sys::confine;
use verbgate_sys::process;
use verbgate_sys::process::Process;
use verbgate_sys::seccomp;
use verbgate_sys::seccomp::Listener;
use verbgate_sys::seccomp::bpf::SockFilter;
use verbgate_sys::window::AddrWindow;
use verbgate_sys::window::FdWindow;
use verbgate_sysfs::Identity;
use verbgate_sysfs::collect::SYSFS_ROOT;

use crate::grant::Granted;
use crate::grant::RDMA_CM;
use crate::trace::Trace;
use crate::virtual_sys::Views;

/// The filter for a process and all its descendants.
#[derive(Debug)]
pub(crate) struct Guard {
    window: AddrWindow,
    fds: FdWindow,
    program: Vec<SockFilter>,
    /// Whether the guest's filter is another, which asks about more.
    judges: bool,
}

/// What of a filter differs from another's, as one process tells another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Windows {
    addresses: u32,
    descriptors: (u32, u32),
}

impl Guard {
    /// Computes the filter of a process with a soft RLIMIT_NOFILE of `limit`.
    pub(crate) fn new(limit: u64) -> Result<Self, anyhow::Error> {
        let window = AddrWindow::probe().map_err(|e| match e.kind() {
            // Refused by another supervisor's filter.
            io::ErrorKind::PermissionDenied => {
                anyhow!("a sandbox cannot be started inside another; start both from outside")
            }
            _ => anyhow!("this kernel offers none of the addresses that the stub needs: {e}"),
        })?;
        let fds = FdWindow::under(limit);
        let program = seccomp::filter::program::<Native>(window, fds)?;
        Ok(Self { window, fds, program, judges: false })
    }

    /// The one of a process that has computed its filter itself, by the same program.
    pub(crate) fn of(windows: Windows) -> Result<Self, anyhow::Error> {
        let (first, len) = windows.descriptors;
        let (window, fds) = (AddrWindow::at(windows.addresses), FdWindow { first, len });
        let program = seccomp::filter::program::<Native>(window, fds)?;
        Ok(Self { window, fds, program, judges: false })
    }

    /// By which another process knows it.
    pub(crate) fn windows(&self) -> Windows {
        Windows { addresses: self.window.hi(), descriptors: (self.fds.first, self.fds.len) }
    }

    /// The one of a guest under a filter that others have made: of the same windows, and of rules
    /// that ask about no less.
    pub(crate) fn behind(window: AddrWindow, fds: FdWindow) -> Result<Self, anyhow::Error> {
        let program = seccomp::filter::program::<Native>(window, fds)?;
        Ok(Self { window, fds, program, judges: true })
    }

    /// Puts the calling process under the filter.
    pub(crate) fn install(&self) -> io::Result<OwnedFd> {
        seccomp::install(&self.program).map(OwnedFd::from)
    }
}

/// What is decided before the guest exists.
#[derive(Debug)]
pub(crate) struct Plan {
    devices: Vec<Device>,
    policy: Arc<Policy>,
}

impl Plan {
    /// Reads the profile, and asks each device for its driver.
    pub(crate) fn new(nodes: &[Granted], profile: &str) -> Result<Self, anyhow::Error> {
        let policy = Arc::new(Policy::named(profile)?);
        let devices = nodes.iter().map(device).collect::<Result<_, _>>()?;
        Ok(Self { devices, policy })
    }

    /// The same for nodes of which one may be the connection manager's.
    pub(crate) fn with_cm(nodes: &[Granted], profile: &str) -> Result<Self, anyhow::Error> {
        let (cm, nodes): (Vec<Granted>, Vec<Granted>) =
            nodes.iter().cloned().partition(|node| node.name == RDMA_CM);
        let mut plan = Self::new(&nodes, profile)?;
        if plan.grants_rdma_cm() {
            cm.iter().for_each(|node| plan.add_rdma_cm(node));
        }
        Ok(plan)
    }

    /// Follows granted devices into the network namespace of a process, to which this command has
    /// moved them. Where RDMA devices belong to namespaces (`rdma system`: exclusive), moving one
    /// makes its node anew, and so another entry of sysfs; the kernel's index stays
    /// (`rdma_dev_change_netns`, drivers/infiniband/core/device.c), and says that it is the same.
    /// Whatever else has come in the place of one stays another device.
    pub(crate) fn follow(&mut self, granted: &mut [Granted], into: Tgid) {
        for one in granted {
            let own = self.devices.iter_mut().find(|device| device.name == one.name);
            let Some(device) = own else { continue };
            let Some(index) = device.index() else { continue };
            if one.identity.check_below(Path::new(SYSFS_ROOT)).is_ok() {
                continue;
            }
            match moved(one, index, into) {
                Ok(now) => {
                    log::info!("{}: {} was {} before it was moved", one.name, now, one.identity);
                    one.identity = now;
                    device.identity = Watched::new(one.identity.clone(), Path::new(SYSFS_ROOT));
                }
                Err(error) => log::warn!("{}: {error:#}", one.name),
            }
        }
    }

    /// Whether the profile has the connection manager.
    pub(crate) fn grants_rdma_cm(&self) -> bool {
        self.policy.grants_rdma_cm()
    }

    /// Grants it.
    pub(crate) fn add_rdma_cm(&mut self, node: &Granted) {
        self.devices.push(of_kind(node, Kind::Cm));
    }

    /// The supervisor of the guest whose notifications arrive at `listener`.
    pub(crate) fn supervisor(
        &self,
        guard: &Guard,
        listener: OwnedFd,
        views: &Views,
        siblings: Option<Siblings>,
        trace: Option<Trace>,
    ) -> Result<Arc<Supervisor>, anyhow::Error> {
        let observer = trace.map(|sink| Box::new(Tracer { sink }) as Box<dyn Observer>);
        let supervisor = Supervisor::new(Config {
            listener: Listener::from(listener),
            window: guard.window,
            fds: guard.fds,
            judge: guard.judges.then(|| guard.program.clone()),
            devices: self.devices.clone().into(),
            policy: Arc::clone(&self.policy),
            gids: Some(Arc::clone(&views.gids)),
            found: Some(Arc::new(views.clone())),
            siblings,
            observer,
        })
        .context("cannot start the supervisor")?;
        Ok(Arc::new(supervisor))
    }
}

fn device(node: &Granted) -> Result<Device, anyhow::Error> {
    let driver = device::driver(&node.source).map_err(|e| {
        anyhow!(
            "cannot open {} for {}: {e}; it must exist, and be readable and writable by you",
            node.source.display(),
            node.name
        )
    })?;
    let index = match node.identity.uverbs() {
        Some(_) => index_of(node.rdev).with_context(|| {
            format!("RDMA netlink does not tell the number of {}; see: rdma dev", node.name)
        })?,
        None => None,
    };
    // After all that was asked by number and path, which then was of this device.
    if (node.identity.number.major, node.identity.number.minor) != node.rdev {
        return Err(anyhow!(
            "{} was granted by another version of verbgate; make the container again",
            node.name
        ));
    }
    node.identity.check_below(Path::new(SYSFS_ROOT)).with_context(|| node.name.clone())?;
    Ok(of_kind(node, Kind::Verbs { driver, index }))
}

/// What the number of a device leads to now, if that is still the kernel's device of this index.
fn moved(granted: &Granted, index: u32, into: Tgid) -> Result<Identity, anyhow::Error> {
    let sysfs = Path::new(SYSFS_ROOT);
    let now = Identity::below(sysfs, granted.identity.number)?;
    let number = granted.rdev;
    // In exclusive mode a device shows in its own namespace alone. A thread for it: the caller
    // stays where it is.
    let asked = std::thread::spawn(move || {
        process::enter_network(&Process::open(into)?.network()?)?;
        index_of(number)
    });
    let asked = asked.join().map_err(|_| anyhow!("the thread that asks RDMA netlink ended"))??;
    if asked != Some(index) {
        return Err(anyhow!("it was removed, or is another device: {}", granted.identity));
    }
    // After the index was asked by the number, which then was that of this identity.
    now.check_below(sysfs)?;
    Ok(now)
}

fn of_kind(node: &Granted, kind: Kind) -> Device {
    let identity = Watched::new(node.identity.clone(), Path::new(SYSFS_ROOT));
    let (name, source) = (node.name.clone(), node.source.clone());
    Device { name, rdev: node.rdev, identity, source, kind }
}

/// Starts the supervisor's threads, and confines them and the caller to what serving takes.
pub(crate) fn start(supervisor: &Arc<Supervisor>) -> io::Result<()> {
    forbid_huge_pages();
    // Two descriptors for each process of the guest, whose own limit was settled at its start.
    process::raise_descriptor_limit();
    confine::cut_capabilities()?;
    serve(supervisor)?;
    confine::deny_the_rest()
}

/// Before the first thread, whose stack could be one. The guest, which would inherit this, has been
/// forked, or is no child of ours.
pub(crate) fn forbid_huge_pages() {
    if let Err(error) = confine::forbid_huge_pages() {
        // Where a seccomp profile refuses it: memory is all that it costs.
        log::debug!("the supervisor's memory may be of huge pages: {error}");
    }
}

/// Starts the supervisor's threads, which end when nobody is left to serve.
pub(crate) fn serve(supervisor: &Arc<Supervisor>) -> io::Result<()> {
    let thread = |name: &str, work: fn(&Arc<Supervisor>) -> io::Result<()>| {
        let supervisor = Arc::clone(supervisor);
        let serve = move || {
            // Whatever its end: nobody may wait for an answer that will not come.
            match panic::catch_unwind(AssertUnwindSafe(|| work(&supervisor))) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => log::error!("RDMA requests are no longer served: {error}"),
                Err(_) => {
                    log::error!("RDMA requests are no longer served, by a fault of verbgate's");
                }
            }
            if let Err(error) = supervisor.hang_up() {
                log::error!("programs that ask for RDMA will wait for ever: {error}; end them");
            }
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(serve).map(drop)
    };
    thread("serve", Supervisor::serve)?;
    thread("serve", Supervisor::serve)?;
    thread("rdma-cm", |supervisor| {
        supervisor.serve_cm();
        Ok(())
    })?;
    thread("look-after", |supervisor| {
        supervisor.look_after();
        Ok(())
    })?;
    thread("tokens", |supervisor| {
        supervisor.attend_tokens();
        Ok(())
    })?;
    thread("watch", |supervisor| {
        supervisor.watch();
        Ok(())
    })
}

/// A file for the report, made before the supervisor may no longer make files.
pub(crate) fn report_file(path: &Path) -> Result<File, anyhow::Error> {
    File::create(path).with_context(|| format!("cannot make the report {}", path.display()))
}

/// Writes what a supervisor did, as JSON.
pub(crate) fn report(counts: &Counts, mut file: &File) -> Result<(), anyhow::Error> {
    writeln!(file, "{}", counted(counts)).context("cannot write the report")
}

/// What a supervisor did.
pub(crate) fn counted(counts: &Counts) -> Value {
    json!({
        "requests": counts.requests,
        "executed": counts.executed(),
        "failed": counts.failed,
        "refused": counts.refused,
        "opened": counts.opened,
        "planted": counts.planted,
        "notifications": counts.notifications,
        "calls": counts.calls,
    })
}

/// Writes a line for each request.
struct Tracer {
    sink: Trace,
}

impl Tracer {
    fn line(&mut self, line: &str) {
        // A trace that cannot be written must not end the program that is traced.
        let _ = writeln!(self.sink, "{line}");
    }
}

impl Observer for Tracer {
    fn opened(&mut self, tid: Tid, device: &str, result: Result<GuestFd, Errno>) {
        match result {
            Ok(fd) => self.line(&format!("[{tid}] open({device}) = {fd}")),
            Err(errno) => self.line(&format!("[{tid}] open({device}) = -1 {errno}")),
        }
    }

    fn done(&mut self, done: &Done<'_>) {
        self.line(&observe::line(done));
    }

    fn cm(
        &mut self,
        tid: Tid,
        name: &'static str,
        id: Option<u32>,
        result: Result<(), Errno>,
        elapsed: Duration,
    ) {
        let id = id.map(|id| format!(" id={id}")).unwrap_or_default();
        let result = match result {
            Ok(()) => "0".to_owned(),
            Err(errno) => format!("-1 {errno}"),
        };
        self.line(&format!(
            "[{tid}] rdma_cm: {name}{id} = {result} <{:.6}>",
            elapsed.as_secs_f64()
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::grant;

    /// Has a fault.
    struct Faulty;

    impl Observer for Faulty {
        fn opened(&mut self, _: Tid, _: &str, _: Result<GuestFd, Errno>) {
            panic!("on purpose");
        }

        fn done(&mut self, _: &Done<'_>) {}

        fn cm(
            &mut self,
            _: Tid,
            _: &'static str,
            _: Option<u32>,
            _: Result<(), Errno>,
            _: Duration,
        ) {
        }
    }

    #[test]
    fn a_fault_of_the_supervisor_leaves_nobody_waiting() {
        if !crate::cli::is_root() {
            eprintln!("SKIPPED: installing a filter without giving up privileges needs root");
            return;
        }
        let guard = Guard::new(process::descriptor_limit()).unwrap();
        let (window, fds) = (guard.window, guard.fds);
        let (give, listener) = mpsc::channel();
        let (go, gate) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        // This thread alone is under the filter.
        std::thread::spawn(move || {
            give.send(guard.install().unwrap()).unwrap();
            gate.recv().unwrap();
            for _ in 0..2 {
                let file = File::options().read(true).write(true).open("/dev/infiniband/uverbs9");
                tell.send(file.map(drop).map_err(|e| e.raw_os_error())).unwrap();
            }
        });
        let null = grant::resolve(&["uverbs9=/dev/null".into()], grant::Host::real()).unwrap();
        let siblings = Siblings::default();
        let supervisor = Supervisor::new(Config {
            listener: Listener::from(listener.recv().unwrap()),
            window,
            fds,
            judge: None,
            devices: vec![device(&null[0]).unwrap()].into(),
            policy: Arc::new(Policy::named("standard").unwrap()),
            gids: None,
            found: None,
            siblings: Some(siblings.clone()),
            observer: Some(Box::new(Faulty)),
        });
        let supervisor = Arc::new(supervisor.unwrap());
        serve(&supervisor).unwrap();
        go.send(()).unwrap();
        let patience = Duration::from_secs(20);
        // The supervisor cannot stop a thread of its own process, by which it would be given.
        assert_eq!(told.recv_timeout(patience).unwrap(), Err(Some(Errno::EPERM.0)));
        assert_eq!(told.recv_timeout(patience).unwrap(), Err(Some(Errno::ENOSYS.0)));
        let deadline = std::time::Instant::now() + patience;
        while !supervisor.is_over() || siblings.count() > 0 {
            assert!(std::time::Instant::now() < deadline, "it goes on");
            std::thread::yield_now();
        }
    }
}
