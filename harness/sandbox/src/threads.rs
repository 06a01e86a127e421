//! The threads of a supervisor, and the supervisor's counters.

use std::io;
use std::panic;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;
use verbgate_proxy::Supervisor;
use verbgate_proxy::observe::Counts;
use verbgate_sys::confine;
use verbgate_sys::confine::CodePages;
use verbgate_sys::process;

/// After this long, what happens once is over.
const SETTLED: Duration = Duration::from_secs(1);

/// Starts the supervisor's threads, and confines them and the caller to the means that serving
/// takes.
pub fn start(supervisor: &Arc<Supervisor>) -> io::Result<()> {
    keep_small();
    // Two descriptors for each process of the guest, whose own limit was settled at its start.
    process::raise_descriptor_limit();
    if let Err(error) = confine::keep_in_memory() {
        log::debug!(
            "the supervisor cannot keep its memory, and may wait for pages when memory is short: \
             {error}"
        );
    }
    confine::cut_capabilities()?;
    serve(supervisor)?;
    tidy(supervisor)?;
    confine::deny_the_rest()
}

/// Gives back code that ran once: soon, and again when the first process that asked for RDMA has its stub. A
/// program that ends at once waits for none of this, and nor does a first request that comes at once.
fn tidy(supervisor: &Arc<Supervisor>) -> io::Result<()> {
    let supervisor = Arc::clone(supervisor);
    let work = move || {
        std::thread::sleep(SETTLED);
        let code = CodePages::look();
        let forget = || {
            let code = code.as_ref().map_err(|e| io::Error::from(e.kind()));
            if let Err(error) = code.and_then(CodePages::forget) {
                log::debug!("the supervisor cannot give back code that it needs no more: {error}");
            }
        };
        forget();
        while supervisor.counts().planted == 0 {
            if supervisor.is_over() {
                return;
            }
            std::thread::sleep(5 * SETTLED);
        }
        // On a loaded machine the beginning takes longer.
        for wait in [1, 4, 16, 64] {
            std::thread::sleep(SETTLED * wait);
            forget();
        }
    };
    std::thread::Builder::new().name("tidy".to_owned()).spawn(work).map(drop)
}

/// Settles, before the first thread, how much memory threads take. A guest would inherit that there are no huge
/// pages, but has been forked already, or is not a child of this process.
pub(crate) fn keep_small() {
    if let Err(error) = confine::keep_small() {
        // Where a seccomp profile refuses it: memory is all that it costs.
        log::debug!("the supervisor cannot refuse huge pages, and may take more memory: {error}");
    }
}

/// Starts the supervisor's threads, which end when nobody is left to serve.
pub fn serve(supervisor: &Arc<Supervisor>) -> io::Result<()> {
    let thread = |name: &str, work: fn(&Arc<Supervisor>) -> io::Result<()>| {
        let supervisor = Arc::clone(supervisor);
        let serve = move || {
            // Whatever its end: nobody may wait for an answer that will not come.
            match panic::catch_unwind(AssertUnwindSafe(|| work(&supervisor))) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => log::error!(
                    "the supervisor no longer serves RDMA requests: {error}; start the sandbox \
                     again"
                ),
                Err(_) => {
                    log::error!(
                        "the supervisor no longer serves RDMA requests, by a fault of verbgate; \
                         start the sandbox again"
                    );
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
    thread("tracer", |supervisor| {
        supervisor.attend_makings();
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

/// The counters of a supervisor.
pub fn counted(counts: &Counts) -> Value {
    json!({
        "requests": counts.requests,
        "executed": counts.executed(),
        "failed": counts.failed,
        "refused": counts.refused,
        "beyond_rate": counts.beyond_rate,
        "opened": counts.opened,
        "planted": counts.planted,
        "notifications": counts.notifications,
        "calls": counts.calls,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::mpsc;

    use verbgate_abi::Errno;
    use verbgate_proxy::Config;
    use verbgate_proxy::Siblings;
    use verbgate_proxy::observe::CmDone;
    use verbgate_proxy::observe::Done;
    use verbgate_proxy::observe::Observer;
    use verbgate_proxy::policy::Policy;
    use verbgate_sys::GuestFd;
    use verbgate_sys::Tid;
    use verbgate_sys::seccomp::Listener;
    use verbgate_wait::until;

    use super::*;
    use crate::grant;
    use crate::guard::Guard;
    use crate::rights::device;

    /// An observer with a fault.
    struct Faulty;

    impl Observer for Faulty {
        fn opened(&mut self, _: Tid, _: &str, _: Result<GuestFd, Errno>) {
            panic!("on purpose");
        }

        fn done(&mut self, _: &Done<'_>) {}

        fn cm(&mut self, _: &CmDone) {}
    }

    #[test]
    fn a_fault_of_the_supervisor_leaves_nobody_waiting() {
        if !verbgate_host::is_root() {
            eprintln!("SKIPPED: installing a filter without giving up privileges needs root");
            return;
        }
        let guard = Guard::new(process::descriptor_limit(), false).unwrap();
        let (window, fds) = (guard.window, guard.fds);
        let (give, listener) = mpsc::channel();
        let (go, gate) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        // This thread alone is under the filter.
        std::thread::spawn(move || {
            give.send(guard.install().unwrap()).unwrap();
            gate.recv().unwrap();
            for _ in 0..3 {
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
            counted: None,
            found: None,
            siblings: Some(siblings.clone()),
            register: None,
            ledger: Arc::default(),
            observer: Some(Box::new(Faulty)),
            memory: Arc::default(),
        });
        let supervisor = Arc::new(supervisor.unwrap());
        serve(&supervisor).unwrap();
        go.send(()).unwrap();
        let answers = [(); 3].map(|()| until("an answer", || told.try_recv().ok()));
        // Each of the two threads that serve can have the fault before either hangs up.
        // The supervisor cannot stop a thread of its own process, by which the guest would be given
        // the device.
        assert_eq!(answers[0], Err(Some(Errno::EPERM.0)));
        assert_eq!(answers[2], Err(Some(Errno::ENOSYS.0)));
        until("the supervisor's end", || supervisor.is_over() && siblings.count() == 0);
    }
}
