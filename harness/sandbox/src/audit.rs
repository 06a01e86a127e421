//! The audit: what a tenant was refused, and whom a tenant speaks with, one JSON object a line.
//!
//! ```json
//! {"time":1767225600.125,"tenant":"team-a","sandbox":"default/job-7","event":"refused",
//!  "process":4711,"thread":4712,"device":"uverbs0","request":"MODIFY_QP","errno":"EADDRINUSE",
//!  "reason":"connection of another sandbox","remedy":"..."}
//! ```
//!
//! A tenant causes events as often as the tenant likes: each has a budget, and the next line says how many
//! lines were left out (`dropped`). Nothing here waits for who reads: a socket that is full loses the
//! line, which counts as left out, too.

use std::fs;
use std::fs::File;
use std::io;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Instant;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use serde_json::Value;
use serde_json::json;
use verbgate_abi::Errno;
use verbgate_abi::Request;
use verbgate_abi::connects::Destination;
use verbgate_proxy::connections::peer;
use verbgate_proxy::observe;
use verbgate_proxy::observe::CmDone;
use verbgate_proxy::observe::Done;
use verbgate_proxy::observe::Observer;
use verbgate_proxy::observe::Verdict;
use verbgate_sys::GuestFd;
use verbgate_sys::Tid;
use verbgate_sys::foreign;

/// The journal's native protocol: systemd's JOURNAL_NATIVE_PROTOCOL.
const JOURNAL: &str = "/run/systemd/journal/socket";
/// Lines of a tenant in a second, and at once: a program that connects with a thousand peers is
/// written down whole within seconds, and a flood fills no disk.
const PER_SECOND: f64 = 200.0;
const AT_ONCE: f64 = 1000.0;

/// Commands of rdma_cm that name a peer, or make others known one.
const CM: &[&str] = &[
    "RESOLVE_ADDR",
    "RESOLVE_IP",
    "BIND_IP",
    "BIND",
    "LISTEN",
    "CONNECT",
    "ACCEPT",
    "JOIN_IP_MCAST",
    "JOIN_MCAST",
];

/// What to do about a refusal, by the beginning of its reason.
#[rustfmt::skip]
const REMEDIES: &[(&str, &str)] = &[
    ("connection of another sandbox", "let the program connect with its own queue pair; if the other sandbox has none any more, end the other sandbox"),
    ("XRC domain of another sandbox", "let each sandbox open XRC domains by a file of its own, or by none"),
    ("connection not registered", "the supervisor's log has the kernel's reason"),
    ("quota", "raise the tenant's quota (rules.quota), or let the program free what it does not use"),
    ("rate", "raise the tenant's rate (rules.rate, rules.rates), or let the program keep its objects"),
    ("UD on a shared port", "let the program use RC, give the sandbox a port of its own, or trust the port's tenants (rules.shared_ud)"),
    ("DC on a shared port", "let the program use RC, give the sandbox a port of its own, or trust the port's tenants (rules.shared_ud)"),
    ("port", "grant the port (a device's ports, rules.ports of rdma_cm), or let the program use a granted one"),
    ("P_Key", "grant the partition (rules.pkeys), or let the program use a granted one"),
    ("GID type", "grant the type (rules.gid_types), or let the program use a GID of a granted one"),
    ("source GID", "let the program use a GID of its own network namespace"),
    ("GID", "let the program use a GID of its own network namespace"),
    ("peer", "grant the peer (rules.peers), or let the program speak with a granted one"),
    ("rdma_cm", "grant rdma_cm to the tenant, or let the program connect by other means"),
    ("device", "grant the device, or let the program use a granted one"),
    ("", "grant a profile that has the request (verbgate abi list), or change the program"),
];

fn remedy(reason: &str) -> &'static str {
    REMEDIES.iter().find(|(begin, _)| reason.starts_with(begin)).map_or("", |(_, remedy)| remedy)
}

/// Where lines go.
#[derive(Debug)]
enum Sink {
    /// A file, or a socket that takes lines as they are.
    Plain(File),
    Journal(File),
}

impl Sink {
    fn open(to: &str) -> io::Result<Self> {
        let connected = |path: &Path| {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>(File::from(OwnedFd::from(socket)))
        };
        Ok(match (to, to.strip_prefix("unix:")) {
            ("journald", _) => Self::Journal(connected(Path::new(JOURNAL))?),
            (_, Some(path)) => Self::Plain(connected(Path::new(path))?),
            (path, None) => Self::Plain(foreign::append(Path::new(path), 0o600)?),
        })
    }

    /// By one write(2): a confined supervisor has no other way, and lines of several supervisors do
    /// not mix.
    fn put(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.write_all(format!("{line}\n").as_bytes()),
            Self::Journal(socket) => {
                let fields =
                    format!("SYSLOG_IDENTIFIER=verbgate-audit\nPRIORITY=5\nMESSAGE={line}\n");
                socket.write_all(fields.as_bytes())
            }
        }
    }
}

/// The audit of one tenant.
#[derive(Debug)]
struct Log {
    sink: Sink,
    tenant: String,
    sandbox: Option<String>,
    tokens: f64,
    filled: Instant,
    dropped: u64,
}

impl Log {
    fn say(&mut self, mut event: Value, now: Instant) {
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + since * PER_SECOND).min(AT_ONCE);
        self.filled = now;
        if self.tokens < 1.0 {
            self.dropped += 1;
            return;
        }
        self.tokens -= 1.0;
        if let Some(fields) = event.as_object_mut() {
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            fields.insert("time".to_owned(), time.as_secs_f64().into());
            fields.insert("tenant".to_owned(), self.tenant.clone().into());
            if let Some(sandbox) = &self.sandbox {
                fields.insert("sandbox".to_owned(), sandbox.clone().into());
            }
            if self.dropped > 0 {
                fields.insert("dropped".to_owned(), self.dropped.into());
            }
        }
        match self.sink.put(&event.to_string()) {
            Ok(()) => self.dropped = 0,
            Err(e) => {
                self.dropped += 1;
                log::debug!("the audit loses a line: {e}");
            }
        }
    }
}

/// The audit of a tenant, which all supervisors of the tenant's sandbox share.
#[derive(Clone, Debug)]
pub struct Audit(Arc<Mutex<Log>>);

impl Audit {
    /// The audit of a tenant, which goes to `journald`, to the datagram socket `unix:PATH`, or to
    /// the file of a path. `sandbox` tells the tenant's sandboxes apart. To be opened before the
    /// supervisor confines itself.
    ///
    /// # Errors
    /// The file's, or the socket's.
    pub fn open(to: &str, tenant: &str, sandbox: Option<&str>) -> io::Result<Self> {
        let log = Log {
            sink: Sink::open(to)?,
            tenant: tenant.to_owned(),
            sandbox: sandbox.map(str::to_owned),
            tokens: AT_ONCE,
            filled: Instant::now(),
            dropped: 0,
        };
        Ok(Self(Arc::new(Mutex::new(log))))
    }

    /// Who tells the audit of requests, and then somebody else.
    #[must_use]
    pub fn observer(&self, other: Option<Box<dyn Observer>>) -> Box<dyn Observer> {
        Box::new(Auditor { audit: self.clone(), other })
    }

    /// Writes an event of the tenant's down.
    pub fn say(&self, event: Value) {
        if let Ok(mut log) = self.0.lock() {
            log.say(event, Instant::now());
        }
    }
}

struct Auditor {
    audit: Audit,
    other: Option<Box<dyn Observer>>,
}

/// The process of a thread that waits for its answer; none where it has gone.
fn process(tid: Tid) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn result(verdict: Verdict) -> Value {
    verdict.errno().map_or("0".to_owned(), |errno| errno.to_string()).into()
}

/// Adds what a refusal needs.
fn explain(event: &mut Value, verdict: Verdict) {
    if let (Verdict::Refused(reason, _), Some(fields)) = (verdict, event.as_object_mut()) {
        fields.insert("reason".to_owned(), reason.into());
        fields.insert("remedy".to_owned(), remedy(reason).into());
    }
}

/// What is written down of a request: refusals, and whom a queue pair is connected with.
fn event(done: &Done<'_>, request: &Request) -> Option<Value> {
    let connect = request.connect().filter(|connect| !connect.paths.is_empty());
    let name = match (done.verdict, &connect) {
        (Verdict::Refused(..), _) => "refused",
        (Verdict::Executed(_), Some(_)) => "connect",
        (Verdict::Executed(_), None) => return None,
    };
    let mut event = json!({
        "event": name, "process": process(done.tid), "thread": done.tid.0, "device": done.device,
        "request": observe::name(request), "errno": result(done.verdict),
    });
    explain(&mut event, done.verdict);
    let fields = event.as_object_mut()?;
    if let Some(connect) = connect {
        let to: Vec<String> = connect.paths.iter().map(|path| peer(path.destination)).collect();
        fields.insert("queue_pair".to_owned(), connect.qp.0.into());
        fields.insert("peer".to_owned(), to.into());
        fields.insert("peer_queue_pair".to_owned(), connect.number.into());
    }
    Some(event)
}

/// What is written down of a command of rdma_cm: refusals, and what makes or names a peer.
fn cm_event(done: &CmDone) -> Option<Value> {
    let name = match done.verdict {
        Verdict::Refused(..) => "refused",
        Verdict::Executed(_) => "connect",
    };
    // EAGAIN of the kernel's own: a socket that does not wait.
    let is_named = CM.contains(&done.name.strip_prefix("CM_").unwrap_or(done.name));
    if name == "connect" && !is_named {
        return None;
    }
    let mut event = json!({
        "event": name, "process": process(done.tid), "thread": done.tid.0, "device": "rdma_cm",
        "request": done.name, "cm_id": done.id, "errno": result(done.verdict),
    });
    explain(&mut event, done.verdict);
    if let (Some(to), Some(fields)) = (done.peer, event.as_object_mut()) {
        let to = peer(Destination::Gid(to.octets()));
        fields.insert("peer".to_owned(), json!([to]));
    }
    Some(event)
}

impl Observer for Auditor {
    fn opened(&mut self, tid: Tid, device: &str, opened: Result<GuestFd, Errno>) {
        if let Err(errno) = opened {
            self.audit.say(json!({
                "event": "refused", "process": process(tid), "thread": tid.0, "device": device,
                "request": "open", "errno": errno.to_string(), "reason": "device not opened",
                "remedy": remedy("device"),
            }));
        }
        if let Some(other) = &mut self.other {
            other.opened(tid, device, opened);
        }
    }

    fn beyond_rate(&mut self, tid: Tid, rule: &str, waits: bool) {
        self.audit.say(json!({
            "event": if waits { "waits" } else { "refused" }, "process": process(tid),
            "thread": tid.0, "errno": if waits { "0".to_owned() } else { Errno::EAGAIN.to_string() },
            "reason": "rate reached", "rule": rule, "remedy": remedy("rate"),
        }));
        if let Some(other) = &mut self.other {
            other.beyond_rate(tid, rule, waits);
        }
    }

    fn done(&mut self, done: &Done<'_>) {
        if let Some(event) = done.request.and_then(|request| event(done, request)) {
            self.audit.say(event);
        }
        if let Some(other) = &mut self.other {
            other.done(done);
        }
    }

    fn cm(&mut self, done: &CmDone) {
        if let Some(event) = cm_event(done) {
            self.audit.say(event);
        }
        if let Some(other) = &mut self.other {
            other.cm(done);
        }
    }

    fn looks_at_objects(&self) -> bool {
        self.other.as_ref().is_some_and(|other| other.looks_at_objects())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lines(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn refused(tid: Tid) -> Done<'static> {
        Done {
            tid,
            device: "uverbs0",
            request: None,
            verdict: Verdict::Refused("request_short", Errno::ENOSPC),
            made: &[],
            made_fd: None,
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn a_refusal_names_tenant_process_device_reason_and_remedy() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let audit = Audit::open(path, "team-a", Some("ns/one")).unwrap();
        let mut observer = audit.observer(None);
        assert!(!observer.looks_at_objects());
        let me = Tid(std::process::id().cast_signed());
        observer.opened(me, "uverbs9", Err(Errno::EPERM));
        observer.opened(me, "uverbs0", Ok(GuestFd(3)));
        // Libraries ask so, to learn what a kernel can do.
        observer.done(&refused(me));
        let cm = |name, verdict| CmDone {
            tid: me,
            name,
            id: Some(7),
            peer: Some("::ffff:10.7.1.3".parse().unwrap()),
            verdict,
            elapsed: Duration::ZERO,
        };
        observer.cm(&cm("CM_CONNECT", Verdict::Executed(0)));
        observer.cm(&cm("CM_GET_EVENT", Verdict::Executed(-11)));
        observer.cm(&cm("CM_RESOLVE_ADDR", Verdict::Refused("peer not granted", Errno::EPERM)));
        observer.cm(&cm("CM_CREATE_ID", Verdict::Refused("quota reached", Errno::EAGAIN)));
        let lines = lines(file.path());
        assert_eq!(lines.len(), 4, "{lines:?}");
        let of = |at: usize, key: &str| lines[at][key].as_str().unwrap_or_default().to_owned();
        assert_eq!(lines[0]["process"], std::process::id());
        assert_eq!((of(0, "tenant"), of(0, "device")), ("team-a".into(), "uverbs9".into()));
        assert_eq!((of(0, "event"), of(0, "errno")), ("refused".into(), "EPERM".into()));
        assert!(of(0, "remedy").contains("grant the device") && lines[0]["time"].is_f64());
        assert!(lines.iter().all(|line| line["sandbox"] == "ns/one"), "{lines:?}");
        assert_eq!((of(1, "request"), &lines[1]["cm_id"]), ("CM_CONNECT".into(), &json!(7)));
        assert_eq!(lines[1]["peer"], json!(["::ffff:10.7.1.3"]));
        assert_eq!((of(1, "event"), of(1, "errno")), ("connect".into(), "0".into()));
        assert_eq!((of(2, "event"), of(2, "errno")), ("refused".into(), "EPERM".into()));
        assert!(of(2, "remedy").contains("grant the peer"), "{lines:?}");
        assert_eq!((of(3, "reason"), of(3, "device")), ("quota reached".into(), "rdma_cm".into()));
        assert!(of(3, "remedy").contains("raise the tenant's quota"), "{lines:?}");
    }

    #[test]
    fn a_flood_meets_its_budget_and_the_next_line_says_what_was_left_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let audit = Audit::open(file.path().to_str().unwrap(), "flood", None).unwrap();
        let start = Instant::now();
        let say = |at: Instant| audit.0.lock().unwrap().say(json!({"event": "refused"}), at);
        (0..5000).for_each(|_| say(start));
        assert_eq!(lines(file.path()).len(), 1000);
        say(start + Duration::from_secs(1));
        let lines = lines(file.path());
        assert_eq!((lines.len(), &lines[1000]["dropped"]), (1001, &json!(4000)));
    }

    #[test]
    fn a_socket_that_nobody_reads_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let reader = UnixDatagram::bind(&path).unwrap();
        let audit = Audit::open(&format!("unix:{}", path.display()), "t", None).unwrap();
        (0..900).for_each(|n| audit.say(json!({"event": "refused", "n": n})));
        let mut bytes = [0; 4096];
        let length = reader.recv(&mut bytes).unwrap();
        let first: Value = serde_json::from_slice(&bytes[..length]).unwrap();
        assert_eq!(first["n"], 0);
        assert!(audit.0.lock().unwrap().dropped > 0);
        assert!(Audit::open("/no/such/directory/audit", "t", None).is_err());
    }

    #[test]
    fn every_reason_has_a_remedy() {
        for reason in
            ["connection of another sandbox", "method not granted", "GID not the sandbox's"]
        {
            assert!(!remedy(reason).is_empty(), "{reason}");
        }
        assert_ne!(remedy("source GID not the sandbox's"), remedy("command not granted"));
    }
}
