//! The making of a stub, and guest code that runs in any thread at any stop.
//!
//! One making is explored, from the maker's trap to the device's file. Between any two of its steps a guest may do
//! what guests can do ([`Move`]): by another thread, or by a process that shares the memory, which is the same to the
//! filter. In no state that can be reached
//!
//! * is the device's file given into a table that is not the stub's alone, to a thread that has run the guest's code,
//!   or while the code or the frame is not the supervisor's (`bound`),
//! * does the code or the frame change afterwards (`change`),
//! * is a file of the frame's put into a table of the guest's (`asked`),
//! * has a guest the device: by tracing the stub, by running in the stub, or by taking the file (`take`),
//! * does the maker wait for ever.
//!
//! One thing a guest can have. The code's file stands in the guest's table while the maker maps that file. Who puts
//! another file there gets a thread that begins in that one, and the frame's files, which every guest maps. The last
//! look finds this, and the thread gets no device.
//!
//! | the model's step | the code |
//! |---|---|
//! | `At::Trapped`, `At::Into`, `At::Entered` | `plant`: `attached`, `stopped`; `inject`: `inject`, `clone`, `enter` |
//! | `left`, `put` | `furnish`: `code_mapped`, `multiplied` |
//! | `At::Born`, `list` | `furnish`: `furnished`; `frame`: `calls` |
//! | `At::Runs`, `asked`, `answered`, `At::Gone` | `inject`: `follow`, `traps_next`, `give`; `serve`: `let_through` |
//! | `in_the_way`, `leftovers` | `furnish`: `furnished`; `frame`: `holds_leftovers_only`; `session`: `stubs_beside` |
//! | `At::Shows`, `At::Known`, `At::Going` | `furnish`: `equipped`; `session`: `announce` |
//! | `At::Idle`, `At::Looked`, `bound` | `finish`: `stub_trapped`; `frame`: `is_mapped`; `execute`: `bind` |
//! | `Move::Map`, `Move::Take`, `Move::Ask` | what the filter asks about, or refuses: `rules`, `filter` |
//!
//! Not shown: numbers that are given again (`World` has these), stops of a process, a second stub, a new one in the
//! memory of one that has ended, and children between vfork(2) and execve(2).

mod course;

use crate::explore::Model;
use crate::explore::explore;

/// A call that the maker is made to make, or the new thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Due {
    MapCode,
    Close,
    Clone,
    Unshare,
    Unmap,
    MapRo,
    MapRw,
    Protect,
}

const NEW: &[Due] = &[Due::Unshare, Due::MapRo, Due::MapRw, Due::Protect];
const OVER: &[Due] = &[Due::Unshare, Due::Unmap, Due::MapRo, Due::MapRw, Due::Protect];

/// The answer of a filter of the guest's to a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Said {
    Errno,
    /// Success, as if the call had been made.
    Zero,
    /// The thread's end.
    End,
}

/// The place of a making. One thing at a time goes on: the maker, the supervisor, or the new thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum At {
    /// The maker waits for its answer.
    #[default]
    Trapped,
    /// The maker is let go, to make a call.
    Into(Due),
    /// The maker is stopped at the entry of the call; true: of another one.
    Entered(Due, bool),
    Born,
    /// The new thread is on its way to the call of this place in the list.
    Runs(usize),
    /// The filter asks about that call.
    Asks(usize),
    Shows,
    Known,
    /// Nobody traces the stub any more.
    Going,
    Idle,
    Looked,
    /// The stub has the device.
    Bound,
    /// The new thread has ended, and nobody has seen that.
    Gone,
    /// The maker has its answer, and there is no stub.
    Over,
}

/// The owner of a mapping in the window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum Whose {
    #[default]
    Nobodys,
    Ours,
    /// The supervisor's too: of another process's making, or left by one.
    Besides,
    Guests,
}

const CODE: usize = 0;
const RO: usize = 1;
const RW: usize = 2;

/// The making of another process that shares the memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum Beside {
    #[default]
    Away,
    Begun,
    /// About to unmap what was found.
    Over,
    HalfMapped,
    Bound,
}

/// A thing that keeps guests out. Tests leave one out at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Defence {
    /// The maker's calls are looked at where they cannot change any more.
    EntryLook,
    /// The supervisor looks at what the maker's mmap(2) returned.
    ExitLook,
    /// A new thread has no rseq(2) area.
    Fresh,
    /// The new thread's calls stand in the sealed code, not in the guest's.
    SealedText,
    /// Nobody can write that code's file.
    SealedFile,
    /// No signal has the new thread run a handler.
    Blocked,
    /// A call about which our filter did not ask was not made.
    Asked,
    /// The new thread leaves the guest's table.
    Unshared,
    /// No file is given before that.
    FilesAfter,
    /// No mapping replaces another.
    NoReplace,
    /// Leftovers stay while another process that shares the memory has a stub, or makes one.
    NobodyBeside,
    /// An empty slot has no leftovers: a filter of the guest's has said EEXIST.
    NotEmpty,
    /// The supervisor traces the new thread until its number is known.
    Traced,
    /// Nobody may attach to a number that is known as a stub's.
    AttachAsked,
    /// The supervisor remembers threads that were allowed to attach before.
    Sought,
    /// The last look before the device.
    LastLook,
    /// The filter asks about calls that reach the window.
    MapAsked,
    /// The filter reads addresses without their tags.
    Untagged,
    /// Calls of other ABIs fail: brk(2), after prctl(2) has moved the heap's end, and pidfd_getfd(2).
    OneAbi,
    /// The filter asks about pidfd_getfd(2).
    TakeAsked,
    /// The end of a new thread is seen.
    EndSeen,
}

/// A step of the model.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// The making goes on from there.
    Next(At),
    /// A mapping by the maker, when the guest has put a file of its own at the number from which is mapped.
    Swap,
    /// The maker makes another call: its instruction was overwritten, or rseq(2) has it abort.
    Elsewhere,
    /// A filter of the guest's answers. What it does before that call is nothing, so it may have come at any time.
    Answer(Said),
    /// The program has a segment there: the kernel maps it, and no filter is asked.
    Segment(usize),
    /// A fork(2) took place in the middle of a parent's making, which had mapped one half of the frame, or two.
    Inherit(usize),
    Map(usize),
    WriteCode,
    /// PTRACE_SEIZE of a number is let through, ...
    Ask,
    /// ... and made.
    Attach,
    /// The guest's code runs in the new thread, and makes another that shares its table.
    Stray,
    Take,
    /// The other process's making goes on.
    Beside,
    /// The maker calls again, and another making begins.
    Again,
}

/// Everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Making {
    without: Option<Defence>,
    at: At,
    window: [Whose; 3],
    /// The list maps over leftovers.
    over: bool,
    /// A filter has answered one of its calls as if that had been made.
    lied: bool,
    /// The new thread's table is not the guest's.
    own: bool,
    /// The guest's code has run in the new thread, and another may have its table.
    strayed: bool,
    /// The new thread was born as the guest likes: with an rseq(2) area.
    steered: bool,
    sought: bool,
    /// A guest traces the new thread.
    traced: bool,
    beside: Beside,
}

/// More states than there are.
const MOST: usize = 200_000;

#[test]
fn undisturbed_makings_end_with_a_stub() {
    for halves in 0..=2 {
        let mut making = Making::default();
        making.take(Move::Inherit(halves)).unwrap();
        while making.waits() {
            making.take(Move::Next(making.at)).unwrap();
        }
        assert_eq!((making.at, making.over), (At::Bound, halves > 0));
    }
}

#[test]
fn stubs_are_made_well_whatever_guests_do() {
    let states =
        explore(&Making::default(), MOST).unwrap_or_else(|fault| panic!("{}", fault.print()));
    println!("{states} states");
    assert!(states > 1_000, "{states} states");
}

/// Without the look at what mmap(2) returned, a thread begins where nothing is mapped, or in a segment of the
/// program's. The last look finds that, too.
#[test]
fn one_defence_of_a_making_is_a_second_lock() {
    let making = Making { without: Some(Defence::ExitLook), ..Making::default() };
    assert!(explore(&making, MOST).is_ok());
}

#[test]
fn every_defence_of_a_making_keeps_something_out() {
    use Defence::*;
    let (guests, changes) = ("a table of the guest's", "changes");
    for (defence, words) in [
        (EntryLook, guests),
        (Fresh, guests),
        (SealedText, guests),
        (SealedFile, changes),
        (Blocked, guests),
        (Asked, guests),
        (Unshared, guests),
        (FilesAfter, guests),
        (NoReplace, changes),
        (NobodyBeside, changes),
        (NotEmpty, changes),
        (Traced, guests),
        (AttachAsked, "traces"),
        (Sought, "traces"),
        (LastLook, "not all is ours"),
        (MapAsked, changes),
        (Untagged, changes),
        (OneAbi, changes),
        (TakeAsked, "takes"),
        (EndSeen, "for ever"),
    ] {
        let making = Making { without: Some(defence), ..Making::default() };
        let fault = explore(&making, MOST).expect_err(&format!("{defence:?} keeps nothing out"));
        println!("{defence:?}: {}", fault.print());
        assert!(fault.what.contains(words), "{defence:?}: {}", fault.what);
    }
}
