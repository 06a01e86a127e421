//! The faults that tests inject.

/// A fault that a test puts in, to see what is said of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Injection {
    /// It posts no receives.
    NoReceives,
    /// It uses another rkey than it was given.
    WrongRkey,
    /// It leaves out the last segment of each message.
    Segments,
    /// It ends in the middle of an exchange.
    Exit,
    /// It stops there, and says nothing more.
    Hang,
    /// It repeats for ever what the peer has no receive for.
    Patient,
    /// It says that its rails speak RoCE v1, which Soft-RoCE cannot.
    RoceV1,
    /// It changes a byte of what it sends.
    WrongData,
    /// It sends from memory of another protection domain.
    ForeignMemory,
    /// It posts more inline data than its queue pair takes.
    LongInline,
    /// It asks for no completion of what it sends.
    Unsignaled,
    /// It gives its peers an address to which no queue pair can be connected.
    WrongAddress,
    /// It says that its ports drop packets of the class, and pause another.
    Lossy,
    /// By rdma_cm it tells its peers a port at which it does not listen.
    NoListener,
    /// It gives its peers another address of its network: its own, with 250 for the last byte.
    SilentAddress,
    /// By rdma_cm it connects queue pairs that are in error.
    DeadQueuePair,
    /// By rdma_cm it ends connections once they stand.
    Disconnect,
}

impl Injection {
    /// Each by the word that says it, and what it does.
    pub const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::NoReceives, "no-receives", "The rank posts no receives"),
        (Self::WrongRkey, "wrong-rkey", "The rank uses a wrong rkey"),
        (Self::Segments, "segments", "The rank leaves out the last segment of each message"),
        (Self::Exit, "exit", "The rank ends in the middle of an exchange"),
        (Self::Hang, "hang", "The rank stops in the middle of an exchange, and says nothing more"),
        (
            Self::Patient,
            "patient",
            "The rank repeats for ever a message for which the peer has no \
                                    receive",
        ),
        (
            Self::RoceV1,
            "roce-v1",
            "The rank says that its rails speak RoCE v1, which Soft-RoCE \
                                   cannot",
        ),
        (Self::WrongData, "wrong-data", "The rank changes a byte of each message"),
        (
            Self::ForeignMemory,
            "foreign-memory",
            "The rank sends from memory of another protection domain",
        ),
        (Self::LongInline, "long-inline", "The rank posts more inline data than fits"),
        (Self::Unsignaled, "unsignaled", "The rank asks for no completion of what it sends"),
        (
            Self::WrongAddress,
            "wrong-address",
            "The rank gives its peers an address that cannot be reached",
        ),
        (
            Self::Lossy,
            "lossy",
            "The rank says that its ports drop packets of traffic class 0, and pause another class",
        ),
        (Self::NoListener, "no-listener", "The rank does not listen at its port of rdma_cm"),
        (
            Self::SilentAddress,
            "silent-address",
            "The rank gives its peers another address of its network, where nobody answers",
        ),
        (
            Self::DeadQueuePair,
            "dead-queue-pair",
            "The rank connects queue pairs by rdma_cm that are in the error state",
        ),
        (
            Self::Disconnect,
            "disconnect",
            "The rank ends its connections of rdma_cm before it exchanges data",
        ),
    ];
}
