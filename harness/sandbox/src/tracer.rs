//! The trace: a line of text for each request.

use std::io::Write;
use std::time::Duration;

use verbgate_abi::Errno;
use verbgate_proxy::observe;
use verbgate_proxy::observe::Done;
use verbgate_proxy::observe::Observer;
use verbgate_sys::GuestFd;
use verbgate_sys::Tid;

/// Writes a line for each request.
pub struct Tracer {
    sink: Box<dyn Write + Send>,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").finish_non_exhaustive()
    }
}

impl Tracer {
    /// A tracer whose lines go to `sink`, each by one write.
    #[must_use]
    pub fn new(sink: Box<dyn Write + Send>) -> Self {
        Self { sink }
    }

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
