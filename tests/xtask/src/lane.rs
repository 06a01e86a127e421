//! Lanes: work that runs beside other work. The lines of each lane can be told apart, and work that
//! nobody waits for yet leaves the processors to work that measures time.

use std::cell::Cell;
use std::cell::RefCell;
use std::process::Command;

thread_local! {
    static LANE: RefCell<String> = const { RefCell::new(String::new()) };
    static NICE: Cell<bool> = const { Cell::new(false) };
}

/// From now on, this thread's lines begin so.
pub(crate) fn enter(name: impl Into<String>) {
    LANE.set(name.into());
}

/// From now on, what this thread starts has the lowest priority, or again the usual one.
pub(crate) fn yield_to_others(nice: bool) {
    NICE.set(nice);
}

/// Prints a line.
pub(crate) fn say(line: &str) {
    LANE.with_borrow(|lane| println!("{lane}{line}"));
}

/// A command with this thread's priority.
pub(crate) fn command(program: std::ffi::OsString) -> Command {
    if !NICE.get() {
        return Command::new(program);
    }
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(program);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream;

    #[test]
    fn what_yields_has_the_lowest_priority() {
        let priority = || {
            let mut command = command("sh".into());
            let stat = stream::answer(command.args(["-c", "cat /proc/$$/stat"])).unwrap();
            let fields = stat.rsplit_once(')').unwrap().1;
            fields.split_whitespace().nth(16).unwrap().parse::<i32>().unwrap()
        };
        let usual = priority();
        yield_to_others(true);
        assert_eq!(priority(), (usual + 19).min(19));
        yield_to_others(false);
        assert_eq!(priority(), usual);
    }
}
