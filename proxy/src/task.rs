//! Tasks: what the supervisor has to do for guests, and what stubs are doing.

use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use verbgate_abi::request::Request;
use verbgate_sys::GuestFd;
use verbgate_sys::frame::Frame;
use verbgate_sys::node::MountId;
use verbgate_sys::process::Thread;
use verbgate_sys::resident::PageMap;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;

use crate::account::Receipt;
use crate::books::UcontextId;
use crate::cm::command::CmCommand;
use crate::connections::Ticket;
use crate::fetch::Copied;
use crate::fetch::Form;
use crate::flight::InFlight;
use crate::flight::Prepared;

/// What a call on an RDMA descriptor asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A request.
    Request {
        form: Form,
        /// Where what it passes is.
        addr: u64,
        /// The first bytes of that; none when it is longer than what is read at first.
        copied: Option<Copied>,
    },
    /// A mapping.
    Map,
}

impl Asked {
    /// As what the call is answered if the descriptor is none of ours.
    pub(crate) fn form(&self) -> Form {
        match self {
            Self::Request { form, .. } => *form,
            // Whatever is no RDMA descriptor is the kernel's to map.
            Self::Map => Form::Write(0),
        }
    }
}

/// A call on an RDMA descriptor.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) trap: Notification,
    pub(crate) fd: GuestFd,
    pub(crate) asked: Asked,
    /// Whether the caller is known to share the memory of the guest that this is posted to.
    pub(crate) met: bool,
    /// What is resident of the caller's memory, unless its guest has a map of that already.
    pub(crate) pages: Option<PageMap>,
    /// The mount that the descriptor was opened through, if that was looked at.
    pub(crate) mount: Option<MountId>,
    /// Whether it has had its turn by the tenant's rate of requests.
    pub(crate) paced: bool,
    /// Whether the call has been told to be beyond a rate.
    pub(crate) late: bool,
    pub(crate) started: Instant,
}

/// Bytes for the caller of a trap.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) trap: Notification,
    pub(crate) pieces: Vec<(u64, Vec<u8>)>,
    pub(crate) then: Then,
}

/// What takes a stub.
#[derive(Debug)]
pub(crate) enum Task {
    Call(Call),
    Deliver(Delivery),
}

impl Task {
    pub(crate) fn trap(&self) -> &Notification {
        match self {
            Self::Call(call) => &call.trap,
            Self::Deliver(delivery) => &delivery.trap,
        }
    }
}

/// A stub that has been planted, or was to be.
#[derive(Debug)]
pub(crate) struct Planted {
    pub(crate) place: usize,
    pub(crate) thread: Option<Arc<Thread>>,
    /// The frame of a place that was not used before.
    pub(crate) frame: Option<Frame>,
}

/// What there is to do for a guest.
#[derive(Debug)]
pub(crate) enum Event {
    /// Something that takes a stub.
    Task(Task),
    /// The stub in this place waits for work, and shows the result of the last.
    Stub(usize, Notification),
    /// A stub is to be planted by way of this call, which is then made again.
    Plant(Notification),
    /// A planting is over.
    Planted(Box<Planted>),
    /// Descriptors are about to be closed or replaced.
    Close(Notification, Vec<GuestFd>),
    /// Credentials are about to change.
    Retire(Notification),
    /// A thread that waits for an event is called away.
    Interrupt(Notification),
    /// It is time to look after it.
    Look,
    /// Its process has ended, or executed another program.
    Over,
}

impl Event {
    /// Whether it is done without a look at the guest's memory, or at its descriptors.
    pub(crate) fn waits_for_nobody(&self) -> bool {
        match self {
            Self::Planted(_) | Self::Interrupt(_) | Self::Over | Self::Task(Task::Deliver(_)) => {
                true
            }
            Self::Task(Task::Call(_))
            | Self::Stub(..)
            | Self::Plant(_)
            | Self::Close(..)
            | Self::Retire(_)
            | Self::Look => false,
        }
    }
}

/// The call that a request was made by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// The guest's trap.
    pub(crate) trap: Notification,
    /// The ucontext.
    pub(crate) ucontext: UcontextId,
    /// When the trap was received.
    pub(crate) started: Instant,
    /// What it changes of connections.
    pub(crate) ticket: Ticket,
    /// What it has been charged.
    pub(crate) receipt: Receipt,
}

/// A request that the supervisor makes when its guest's state is free.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) about: About,
    pub(crate) form: Form,
    pub(crate) request: Request,
    pub(crate) file: Arc<File>,
}

/// What a stub is at work on.
#[derive(Debug)]
pub(crate) enum Job {
    /// A request, which is in the kernel.
    Request {
        /// Whose it is.
        about: About,
        /// The request.
        done: Box<InFlight>,
        /// What the stub shows when it could write the outputs that it was told to write.
        written: i64,
    },
    /// Outputs for the caller of a trap.
    Write {
        /// The trap.
        trap: Notification,
        /// What the stub shows when all could be written.
        written: i64,
        /// What comes then.
        then: Then,
    },
    /// A mapping for the caller of a trap.
    Map(Notification),
}

impl Job {
    /// Whose trap it is for.
    pub(crate) fn trap(&self) -> &Notification {
        match self {
            Self::Request { about: About { trap, .. }, .. }
            | Self::Write { trap, .. }
            | Self::Map(trap) => trap,
        }
    }

    /// Turns the job over to the trap of its caller's second call.
    pub(crate) fn is_for(&mut self, again: Notification) {
        match self {
            Self::Request { about, .. } => about.trap = again,
            Self::Write { trap, then, .. } => {
                *trap = again;
                match then {
                    Then::Execute(about, _) => about.trap = again,
                    Then::Answer(..) | Then::Command(_) => {}
                }
            }
            Self::Map(trap) => *trap = again,
        }
    }
}

/// What comes when outputs have been written.
#[derive(Debug)]
pub(crate) enum Then {
    /// The caller's call ends; with EFAULT, and what has been done undone, when they could not be.
    Answer(Reply, Option<Undo>),
    /// The request can begin: its outputs can be written.
    Execute(About, Box<Prepared>),
    /// The command can be given: its response can be written.
    Command(Box<CmCommand>),
}

/// Undoes what the caller could not be told of.
pub(crate) struct Undo(pub(crate) Box<dyn FnOnce() + Send>);

impl fmt::Debug for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Undo")
    }
}
