//! A program that has pages of a device mapped, and says on demand what loads, stores and requests come to.

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use rustix::process::Signal;

use crate::exec;
use crate::exec::Program;
use crate::world::Place;
use crate::world::World;

const SCRIPT: &str = include_str!("../../../scripts/doorbell.py");
/// The end of what is said of one look.
const LOOKED: &str = "looked";

/// The line of a request that nobody answers: the supervisor is gone.
pub(super) const UNANSWERED: &str = "a request: Function not implemented";
/// The line of a request that was.
pub(super) const EXECUTED: &str = "a request: executed";

/// The program, in its place.
#[derive(Debug)]
pub(super) struct Onlooker {
    /// In a sandbox, the supervisor's.
    pub(super) program: Program,
    guest: u32,
    looks: usize,
}

impl Onlooker {
    /// Starts it; the device has its objects when this returns.
    pub(super) fn start(world: &World, place: Place) -> Result<Self> {
        let command = world.command(place, &["python3", "-c", SCRIPT, &world.device])?;
        let mut program = Program::start(command)?;
        let mut is_ready = false;
        exec::wait_until("a program that looks at its doorbells", || {
            is_ready = program.stdout_so_far()?.contains("ready");
            Ok(is_ready || program.has_ended()?)
        })?;
        if !is_ready {
            bail!("no doorbells to look at: the program {}", program.describe()?);
        }
        let guest = match place {
            Place::Native => program.pid(),
            Place::Sandbox => exec::guest_of(&mut program)?,
        };
        Ok(Self { program, guest, looks: 0 })
    }

    /// Has it look, and gives what it says; one that dies of that says less.
    pub(super) fn look(&mut self) -> Result<Vec<String>> {
        self.looks += 1;
        exec::signal(self.guest, Signal::USR1);
        let mut said = String::new();
        exec::wait_until("a look at doorbells", || {
            said = self.program.stdout_so_far()?;
            Ok(said.matches(LOOKED).count() >= self.looks || !exec::is_alive(self.guest))
        })
        .with_context(|| format!("it has said {said:?}"))?;
        let last = said.split(LOOKED).nth(self.looks - 1).unwrap_or_default().trim();
        Ok(last.lines().filter(|line| *line != "ready").map(ToOwned::to_owned).collect())
    }

    /// Ends one whose supervisor is dead.
    pub(super) fn end(self) {
        exec::kill(self.guest);
    }
}
