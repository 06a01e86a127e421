//! All attacks: the attacker's part inside, the world's part meanwhile, and the statements that
//! must hold.

mod books;
mod born;
pub(crate) mod calls;
mod crowd;
mod innocents;
mod model;
mod numbers;
mod opens;
mod real;
mod silent;
mod waiting;

use std::io;

use crate::board::Board;
use crate::guest::Guest;

/// Inside the sandbox.
type Inside = fn(&Guest) -> io::Result<()>;
/// Outside of it, with the world's folder.
type Outside = fn(&Board, &str) -> io::Result<()>;
/// What did not hold, by what the world's folder holds in the end.
type Judge = fn(&str) -> io::Result<Vec<String>>;

/// An attack.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// The limit of process numbers of its world.
    pub(crate) numbers: u32,
    /// Whether it goes on until the sandbox is ended. Such an attack says when it is [in effect](Guest::in_effect).
    pub(crate) goes_on: bool,
    /// Processes of one attacker that take processor time all the while.
    pub(crate) processes: u32,
    /// By how many KiB the supervisor may grow.
    pub(crate) growth: u64,
    /// Whether requests are traced.
    pub(crate) traced: bool,
    /// What the world needs before it begins.
    pub(crate) prepare: Option<Outside>,
    pub(crate) guest: Inside,
    /// What goes on outside while it lasts.
    pub(crate) outside: Option<Outside>,
    pub(crate) judge: Option<Judge>,
}

impl Attack {
    const fn new(name: &'static str, guest: Inside) -> Self {
        Self {
            name,
            numbers: 400,
            goes_on: false,
            processes: 1,
            growth: 16 << 10,
            traced: false,
            prepare: None,
            guest,
            outside: None,
            judge: None,
        }
    }

    const fn with(self, prepare: Outside) -> Self {
        Self { prepare: Some(prepare), ..self }
    }

    const fn beside(self, outside: Outside) -> Self {
        Self { outside: Some(outside), ..self }
    }

    const fn goes_on(self) -> Self {
        Self { goes_on: true, ..self }
    }

    const fn of(self, numbers: u32) -> Self {
        Self { numbers, ..self }
    }

    const fn judged(self, judge: Judge) -> Self {
        Self { judge: Some(judge), traced: true, ..self }
    }
}

const ATTACKS: &[Attack] = &[
    Attack::new("ghost", numbers::ghost).beside(numbers::heir),
    Attack::new("ghost_slow", real::ghost_slow).beside(numbers::heir),
    Attack::new("ghost_event", real::ghost_event).beside(numbers::heir),
    Attack::new("read_only", numbers::read_only),
    Attack::new("read_only_forged", numbers::read_only_forged),
    Attack::new("impersonate", numbers::impersonate),
    Attack::new("impersonate_from_start", numbers::impersonate_from_start),
    Attack::new("dead_stub", numbers::dead_stub),
    Attack::new("dead_stub_anywhere", numbers::dead_stub_anywhere),
    Attack::new("filters", born::filters),
    Attack::new("parked", born::parked).goes_on(),
    Attack::new("ways", born::ways).with(born::natively),
    Attack::new("generated", calls::generated)
        .of(2000)
        .with(calls::natively)
        .beside(calls::compared),
    Attack::new("innocent", innocents::innocent),
    Attack::new("heirs", innocents::heirs),
    Attack::new("lives", crowd::lives),
    Attack::new("traced", crowd::traced),
    Attack::new("mount_id", opens::mount_id).judged(opens::as_traced),
    Attack { processes: 12, ..Attack::new("stall", waiting::stall) },
    Attack::new("exec_lease", waiting::exec_lease).goes_on(),
    Attack::new("exec_zombie", waiting::exec_zombie).goes_on(),
    Attack::new("exec_fuse", silent::exec).with(crate::fuse::prepare).goes_on(),
    Attack::new("fuse_getattr", silent::getattr).with(crate::fuse::prepare).goes_on(),
    Attack::new("fuse_flush", silent::flush).with(crate::fuse::prepare).goes_on(),
    Attack::new("fuse_read", silent::read).with(crate::fuse::prepare).goes_on(),
    Attack::new("fuse_read_sync", silent::read).with(crate::fuse::prepare_sync).goes_on(),
    Attack::new("fuse_path", silent::path).with(crate::fuse::prepare).goes_on(),
    Attack::new("fuse_path_sync", silent::path).with(crate::fuse::prepare_sync).goes_on(),
    Attack::new("fuse_access", silent::access).with(crate::fuse::prepare).goes_on(),
    Attack::new("fuse_access_sync", silent::access).with(crate::fuse::prepare_sync).goes_on(),
    Attack::new("faults_request", waiting::faults_request).goes_on(),
    Attack::new("faults_path", waiting::faults_path).goes_on(),
    Attack::new("faults_access", waiting::faults_access).goes_on(),
    Attack::new("faults_vector", waiting::faults_vector).goes_on(),
    Attack::new("faults_write", waiting::faults_write).goes_on(),
    Attack::new("faults_input", waiting::faults_input).goes_on(),
    Attack::new("faults_output", waiting::faults_output).goes_on(),
    Attack::new("faults_of_programs", waiting::faults_of_programs),
    Attack::new("model", model::model).judged(opens::as_traced),
    Attack::new("tables", opens::tables).judged(opens::as_traced),
    Attack::new("slow_threads", crowd::slow_threads).of(1000).goes_on(),
    Attack::new("short_waits", crowd::short_waits).of(1000).goes_on(),
    Attack::new("slow_processes", crowd::slow_processes).of(1000),
    Attack { growth: 4 << 10, ..Attack::new("handles", books::handles) },
    Attack::new("descriptors", books::descriptors),
    Attack::new("opens", books::opens),
    Attack::new("duplicates", books::duplicates),
    Attack::new("no_descriptors", books::no_descriptors),
    Attack::new("connections", real::connections),
    Attack::new("accomplice", books::accomplice).beside(books::receives),
];

/// A load, and no attack: what bystanders wait beside it, they wait because the machine is busy.
const LOAD: Attack = Attack::new(crate::bench::LOAD, innocents::load).goes_on();

/// The names of all attacks.
#[must_use]
pub fn names() -> Vec<&'static str> {
    ATTACKS.iter().map(|attack| attack.name).collect()
}

/// Those that go on until the sandbox is ended: a container must be gone whatever they do.
#[must_use]
pub fn going_on() -> Vec<&'static str> {
    ATTACKS.iter().filter(|attack| attack.goes_on).map(|attack| attack.name).collect()
}

pub(crate) fn find(name: &str) -> io::Result<&'static Attack> {
    let found = ATTACKS.iter().chain([&LOAD]).find(|attack| attack.name == name);
    found.ok_or_else(|| io::Error::other(format!("no attack is called {name}")))
}
