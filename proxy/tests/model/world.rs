//! The model's world: its things, and the statements that hold for them.

/// A name of a thread's life or of a notification: never two things at a time, and given again only
/// when nobody keeps it any more, so that names that are kept are as good as unique.
pub(crate) type Name = u8;
/// A thread's number: the kernel gives it again as soon as the thread has ended.
pub(crate) type Tid = u8;

/// Numbers that there are.
pub(crate) const TIDS: usize = 4;
/// Threads of the supervisor: two that receive, and one that looks after.
pub(crate) const HANDLERS: usize = 3;
/// The one that looks after.
pub(crate) const KEEPER: usize = HANDLERS - 1;
/// Stubs in a row that may end before their first trap: `MOST_STILLBORN`.
pub(crate) const MOST_STILLBORN: u8 = 3;

/// A file: that of one device or another, or nothing that a request works on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum File {
    Nothing,
    A,
    B,
}

/// What a guest thread does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Call {
    /// A request on the descriptor.
    Request,
    /// The same, with outputs that go by way of the supervisor.
    Supervised,
    /// Closes the descriptor.
    Close,
    /// Changes its credentials.
    Retire,
    /// What a stub does: it shows what it has done last, which only a stub can have done. Who has
    /// jumped into a stub's code can show anything, and has done nothing.
    Stub(Option<Done>),
}

/// What a stub does for the call of a caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Round {
    /// The outputs are written as they are, to see that they can be.
    Before,
    /// The request.
    Ioctl,
    /// The outputs.
    After,
}

/// For which trap a stub has done what.
pub(crate) type Done = (Name, Round);

/// A notification, as whoever has received it keeps it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Trap {
    pub(crate) id: Name,
    pub(crate) tid: Tid,
    pub(crate) call: Call,
    /// The truth, which no supervisor knows: in whose memory the call was made, ...
    pub(crate) space: u8,
    /// ... and that all threads of its process had given up their credentials.
    pub(crate) unprivileged: bool,
}

/// What a thread is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Phase {
    /// On its way into its next call.
    Going,
    /// In a trap.
    Trapped { id: Name, received: bool },
    /// Stopped by who plants.
    Held,
    /// Ended while it was traced: its number is kept.
    Zombie,
    /// A stub that was let go: the request first, then what the frame says.
    Running { ioctl: bool },
}

/// What kind of thread it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Role {
    /// Makes calls, one after the other; it is at this one.
    Caller { script: &'static [Call], at: u8 },
    /// The stub in this place of a guest; it has this file, and has done that.
    Stub { guest: u8, place: u8, file: File, done: Option<Done> },
    /// Has jumped into the stub's code.
    Impostor,
    /// Of the host: no business of anybody's here.
    Foreign,
}

/// A thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Thread {
    pub(crate) life: Name,
    /// Whose; the host's are nobody's.
    pub(crate) process: Option<u8>,
    pub(crate) space: u8,
    pub(crate) role: Role,
    pub(crate) phase: Phase,
    /// Has given up its credentials.
    pub(crate) unprivileged: bool,
}

/// A guest process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Process {
    pub(crate) alive: bool,
    /// The memory of its program.
    pub(crate) space: u8,
    /// What the descriptor means on which requests are made.
    pub(crate) fd: File,
    /// A filter of its own ends stubs as they trap.
    pub(crate) filter: bool,
    /// Its memory answers when it likes to.
    pub(crate) slow: bool,
    /// Whose owner's number it has put where a planted memory has its own.
    pub(crate) forged: Option<u8>,
}

/// Where a thread's traps go: `session::Route`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Route {
    Made,
    Stub { guest: u8, place: u8, life: Name },
}

/// `task::Job`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Job {
    pub(crate) trap: Trap,
    pub(crate) round: Round,
    pub(crate) file: File,
}

/// `session::StubState`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum State {
    Starting,
    Idle(Name),
    Busy(Job),
    Ended,
}

/// What a frame holds, as the stub will find it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Frame {
    /// The request that was laid out: for which trap, vetted for which file.
    pub(crate) request: Option<(Name, File)>,
    /// The orders: what to write, in whose memory it was asked for.
    pub(crate) write: Option<(Name, Round, u8)>,
    pub(crate) exit: bool,
}

/// `session::Worker`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Worker {
    pub(crate) tid: Tid,
    pub(crate) life: Name,
    pub(crate) state: State,
    pub(crate) bound: Option<File>,
    pub(crate) unbind: bool,
    pub(crate) retire: bool,
    pub(crate) frame: Frame,
}

/// `task::Event`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Event {
    Task(Trap),
    Stub(u8, Trap),
    Plant(Trap),
    Close(Trap),
    Retire(Trap),
    Look,
    Over,
}

/// `session::Guest` with its state.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Guest {
    pub(crate) process: u8,
    /// In the registry still.
    pub(crate) registered: bool,
    pub(crate) planted: bool,
    pub(crate) over: bool,
    pub(crate) locked: bool,
    pub(crate) stillborn: u8,
    pub(crate) workers: Vec<Worker>,
    pub(crate) waiting: Vec<Trap>,
    pub(crate) inbox: Vec<Event>,
}

/// Where a thread of the supervisor is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Pc {
    Free,
    /// `handle`: has received.
    Lookup(Trap),
    /// `routed`: has looked the route up.
    Routed(Trap, Route),
    /// `routed`: has found the trap valid since.
    Valid(Trap, Route),
    /// `routed`: the route's stub lives.
    Alive(Trap, Route),
    /// `handle`: what no route leads anywhere.
    Concern(Trap),
    /// `plant_for`.
    PlantFor(Trap),
    /// `post`: holds the state.
    Serving(u8),
    /// `post`: has found the inbox empty.
    Leaving(u8),
    /// `call`, and what it goes through.
    Held(u8, Trap),
    Means(u8, Trap),
    Take(u8, Trap, u8, File),
    /// What was found, and what was taken; the last one is the truth: whether that is the caller's.
    Bind(u8, Trap, u8, (File, File), bool),
    Run(u8, Trap, u8, File),
    /// `plant`: what is to be done, and when the caller is held.
    Plant(u8, Trap),
    Planting(u8, Trap, Option<u8>),
}

/// A thread of the supervisor.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Handler {
    pub(crate) pc: Pc,
    /// Left of `go_on`.
    pub(crate) turns: u8,
    /// Traps that are handled from the beginning when the guest has been served.
    pub(crate) again: Vec<Trap>,
}

/// What is wrong with a supervisor, on purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Defect {
    /// A route is followed without asking whether the trap is valid.
    RouteWithoutValid,
    /// A route is followed without asking whether its stub lives.
    RouteWithoutAlive,
    /// Nobody looks for stubs that have ended.
    NoSweep,
    /// Whoever has a stub's number shows its results.
    ResultByNumber,
    /// Outputs are written to whoever has the caller's number.
    WriteByNumber,
    /// What is found out by a number is believed as it is.
    Unbelieved,
    /// Nobody compares the caller's memory with the stub's.
    NoShares,
    /// A descriptor that is taken is not looked at again.
    NotCompared,
    /// A stub outlives the credentials that it was made with.
    NoRetire,
    /// Stubs are planted again for as long as they end.
    NoStillbornLimit,
    /// Whoever leaves a guest does not look into its inbox again.
    NoSecondLook,
    /// No process is ended for keeping the supervisor waiting.
    NoWatch,
    /// An event of a stub's trap is believed though the trap is none any more.
    StaleEvent,
    /// Who finds a memory without an owner, and its process planted, does not look again.
    ForgetsEarly,
}

/// How often each thing may still happen that only a guest, or chance, makes happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Budget {
    pub(crate) kills: u8,
    pub(crate) execs: u8,
    pub(crate) stub_kills: u8,
    pub(crate) impostors: u8,
    pub(crate) foreigners: u8,
    pub(crate) replaced: u8,
    pub(crate) filters: u8,
    pub(crate) slow: u8,
    pub(crate) signals: u8,
}

/// What one exploration is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Setting {
    /// The filter is ours: a trap that was received ends with its thread only.
    pub(crate) killable: bool,
    /// `MAX_SLOTS`.
    pub(crate) slots: usize,
    pub(crate) defect: Option<Defect>,
}

/// Everything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct World {
    pub(crate) setting: Setting,
    pub(crate) budget: Budget,
    /// How many names are kept.
    pub(crate) names: Name,
    pub(crate) threads: [Option<Thread>; TIDS],
    pub(crate) processes: Vec<Process>,
    /// Whose stubs live in a memory, by the number that is in it.
    pub(crate) owners: [Option<u8>; 4],
    pub(crate) routes: [Option<Route>; TIDS],
    pub(crate) guests: Vec<Guest>,
    pub(crate) handlers: [Handler; HANDLERS],
}

/// The calls of two threads, by process.
pub(crate) type Scripts = &'static [(u8, &'static [Call])];

impl World {
    /// Threads about to begin.
    pub(crate) fn new(setting: Setting, budget: Budget, scripts: Scripts) -> Self {
        let mut threads = [None; TIDS];
        for (at, (process, script)) in scripts.iter().enumerate() {
            let role = Role::Caller { script, at: 0 };
            let (process, space) = (Some(*process), *process);
            let life = Name::try_from(at).unwrap();
            let (phase, unprivileged) = (Phase::Going, false);
            threads[at] = Some(Thread { life, process, space, role, phase, unprivileged });
        }
        let count = 1 + scripts.iter().map(|(process, _)| *process).max().unwrap_or(0);
        let (filter, slow, forged) = (false, false, None);
        let process = |space| Process { alive: true, space, fd: File::A, filter, slow, forged };
        let free = Handler { pc: Pc::Free, turns: 0, again: Vec::new() };
        Self {
            setting,
            budget,
            names: Name::try_from(scripts.len()).unwrap(),
            threads,
            processes: (0..count).map(process).collect(),
            owners: [None; 4],
            routes: [None; TIDS],
            guests: Vec::new(),
            handlers: std::array::from_fn(|_| free.clone()),
        }
    }

    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.setting.defect == Some(defect)
    }

    pub(crate) fn thread(&self, tid: Tid) -> Option<&Thread> {
        self.threads[usize::from(tid)].as_ref()
    }

    /// `Thread::is_alive`.
    pub(crate) fn lives(&self, life: Name) -> bool {
        let lives = |thread: &Thread| thread.life == life && thread.phase != Phase::Zombie;
        self.threads.iter().flatten().any(lives)
    }

    /// `Listener::is_valid`; and whose trap it is.
    pub(crate) fn in_trap(&self, id: Name) -> Option<usize> {
        let is =
            |thread: &Thread| matches!(thread.phase, Phase::Trapped { id: of, .. } if of == id);
        self.threads.iter().position(|thread| thread.as_ref().is_some_and(is))
    }

    pub(crate) fn is_valid(&self, id: Name) -> bool {
        self.in_trap(id).is_some()
    }
}
