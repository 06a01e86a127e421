//! The trace: a line of text for each request.

use std::io::Write;

use serde_json::Value;
use serde_json::json;
use verbgate_abi::Errno;
use verbgate_abi::legacy;
use verbgate_proxy::observe;
use verbgate_proxy::observe::CmDone;
use verbgate_proxy::observe::Done;
use verbgate_proxy::observe::Observer;
use verbgate_proxy::observe::Verdict;
use verbgate_sys::GuestFd;
use verbgate_sys::Tid;

use crate::recorded::Recorded;

/// Writes a line for each request.
pub struct Tracer {
    sink: Box<dyn Write + Send>,
    json: bool,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").finish_non_exhaustive()
    }
}

impl Tracer {
    /// A tracer whose lines go to `sink`, each by one write: for people, or as JSON.
    #[must_use]
    pub fn new(sink: Box<dyn Write + Send>, json: bool) -> Self {
        Self { sink, json }
    }

    fn line(&mut self, line: &str) {
        // A trace that cannot be written must not end the program that is traced.
        let _ = writeln!(self.sink, "{line}");
    }
}

/// A request as JSON: the request itself, where it could be decoded, and how the request ended.
fn of_request(done: &Done<'_>) -> Value {
    let mut line = done.request.map_or_else(
        || json!({}),
        |request| serde_json::to_value(Recorded::from(request)).unwrap_or_default(),
    );
    let (result, errno, refused) = match done.verdict {
        Verdict::Executed(result) => {
            let errno = i32::try_from(-result).ok().filter(|errno| *errno > 0);
            (Some(result), errno.map(Errno), None)
        }
        Verdict::Refused(reason, errno) => (None, Some(errno), Some(reason)),
    };
    let private = done.request.and_then(|request| {
        let driver = request.hdr().driver();
        legacy::uhw(driver, request.operation(), request.uhw_in().len())
    });
    if let Some(object) = line.as_object_mut() {
        object.insert("private".to_owned(), private.map(|spec| spec.name).into());
        object.insert("thread".to_owned(), done.tid.0.into());
        object.insert("device".to_owned(), done.device.into());
        object.insert("result".to_owned(), result.into());
        object.insert("errno".to_owned(), errno.map(|errno| errno.to_string()).into());
        object.insert("refused".to_owned(), refused.into());
        object.insert("seconds".to_owned(), done.elapsed.as_secs_f64().into());
    }
    line
}

impl Observer for Tracer {
    fn opened(&mut self, tid: Tid, device: &str, result: Result<GuestFd, Errno>) {
        if self.json {
            let errno = result.err().map(|errno| errno.to_string());
            return self
                .line(&json!({"thread": tid.0, "open": device, "errno": errno}).to_string());
        }
        match result {
            Ok(fd) => self.line(&format!("[{tid}] open({device}) = {fd}")),
            Err(errno) => self.line(&format!("[{tid}] open({device}) = -1 {errno}")),
        }
    }

    fn done(&mut self, done: &Done<'_>) {
        if self.json {
            return self.line(&of_request(done).to_string());
        }
        self.line(&observe::line(done));
    }

    fn cm(&mut self, done: &CmDone) {
        let CmDone { tid, name, id, elapsed, verdict, .. } = *done;
        if self.json {
            let errno = done.errno().map(|errno| errno.to_string());
            let line = json!({"thread": tid.0, "rdma_cm": name, "id": id, "errno": errno,
                              "seconds": elapsed.as_secs_f64()});
            return self.line(&line.to_string());
        }
        let id = id.map(|id| format!(" id={id}")).unwrap_or_default();
        let result = match (verdict, done.errno()) {
            (Verdict::Refused(reason, errno), _) => format!("-1 {errno} (refused: {reason})"),
            (Verdict::Executed(_), Some(errno)) => format!("-1 {errno}"),
            (Verdict::Executed(_), None) => "0".to_owned(),
        };
        self.line(&format!(
            "[{tid}] rdma_cm: {name}{id} = {result} <{:.6}>",
            elapsed.as_secs_f64()
        ));
    }
}
