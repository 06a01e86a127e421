//! The cases of one lab: each case counts as soon as it has ended, whatever becomes of the rest.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use verbgate_lab::Kernel;
use verbgate_lab::Limit;
use verbgate_lab::MachineDied;
use verbgate_lab::Nic;
use verbgate_tests::cases;
use verbgate_tests::cases::Setting;
use verbgate_tests::line::End;
use verbgate_tests::line::Line;
use verbgate_tests::runner::Choice;
use verbgate_tests::tally::Tally;

use crate::guest::Lines;
use crate::guest::Programs;
use crate::guest::TESTS;
use crate::host;
use crate::host::Outcome;

/// What a case may take besides its own limit before it is stuck: ending what it started, and
/// booting before the first.
const MARGIN: Duration = Duration::from_secs(5 * 60);

/// The NICs of a lab that has any, and what the program in the guest calls them.
fn nics(setting: Setting) -> Option<(&'static [Nic], &'static str)> {
    match setting {
        Setting::Software => None,
        Setting::Nics => Some((&[Nic::Efa, Nic::Efa], "efa")),
        Setting::Cards => Some((&[Nic::Erdma, Nic::Erdma], "erdma")),
        Setting::Ports => Some((&[Nic::Mlx5, Nic::Mlx5], "mlx5")),
    }
}

/// What a lab of this setting has beside its kernel, for people.
pub(crate) fn equipment(kernel: &Kernel, setting: Setting) -> &'static str {
    nics(setting).map_or(kernel.userland, |(_, name)| name)
}

/// What the cases of a lab have said so far.
#[derive(Debug, Default)]
struct Heard {
    chosen: usize,
    ended: usize,
    running: Option<String>,
    tally: Tally,
    flaky: Vec<String>,
    reports: Vec<String>,
    /// The lines that come are the last report's.
    reporting: bool,
    closed: bool,
    /// The case in which a machine died, for a reason that may be the case's.
    suspect: Option<String>,
}

impl Heard {
    /// Takes a line; true if it is for people.
    fn line(&mut self, text: &str) -> bool {
        let line = Line::read(text);
        if line.is_some() {
            self.reporting = false;
        } else if let Some(report) = self.reports.last_mut().filter(|_| self.reporting) {
            *report += &format!("\n{text}");
        }
        match line {
            // Of a run that goes on after another: it knows of the rest only.
            Some(Line::Chosen(count)) => self.chosen = self.ended + count,
            Some(Line::Begun(name)) => self.running = Some(name),
            Some(Line::Closing(_)) => self.closed = true,
            Some(Line::Ended(name, end)) => {
                let was_lost = self.suspect.as_ref() == Some(&name) && end == End::Passed;
                let end = if was_lost { End::Flaky } else { end };
                self.tally += end.tally(&name);
                self.ended += 1;
                self.running = None;
                if matches!(end, End::Failed | End::Flaky) {
                    self.reports.push(text.to_owned());
                    self.reporting = true;
                }
                if end == End::Flaky {
                    self.flaky.push(name);
                }
                return true;
            }
            None => return true,
        }
        false
    }

    /// Counts one failure for a run that did not come to its end; says which case was running.
    fn broken_off(&mut self, why: &str) -> String {
        self.tally += Tally::FAILED;
        let running = self.running.take();
        let mut text = match &running {
            Some(case) => format!("FAILED {case}: the case was running when the lab ended: {why}"),
            None => format!("FAILED: the lab ended before the cases: {why}"),
        };
        let left = self.chosen.saturating_sub(self.ended + usize::from(running.is_some()));
        if left > 0 {
            text += &format!("\n{left} more cases were not run");
        }
        let text = text.replace('\n', "\n    ");
        self.reports.push(text.clone());
        text
    }

    fn outcome(self) -> Outcome {
        let Self { tally, flaky, reports, .. } = self;
        Outcome { tally, skipped: Vec::new(), flaky, reports }
    }
}

/// Runs the cases in one lab; `told` gets the counts whenever they change.
pub(crate) fn in_lab(
    programs: &Programs,
    kernel: &'static Kernel,
    setting: Setting,
    words: &[String],
    told: &mut dyn FnMut(Tally),
) -> Outcome {
    let longest = cases::of(setting).iter().map(|case| case.limit).max().unwrap_or_default();
    let limit = Limit::Silence(longest + MARGIN);
    count(told, |from, output| {
        let mut argv = vec![TESTS, "run"];
        let (nics, name) = nics(setting).unzip();
        if let Some(name) = name {
            argv.extend(["--nics", name]);
        }
        let nics = nics.unwrap_or_default();
        if let Some(from) = from {
            argv.extend(["--from", from]);
        }
        argv.extend(words.iter().map(String::as_str));
        programs.run_on_nics(kernel, nics, &argv, limit, output)
    })
}

/// The kernel on which NICs are tried where nobody asks for more.
const SHORT_ON: &str = "6.12";
/// What is tried of each NIC then: that its devices are seen, carry data, and cost no trap; what tenants
/// have apart from each other; and that doorbells outlive a supervisor, and supervisors a device.
const SHORT: &[(Setting, &[&str])] = &[
    (
        Setting::Nics,
        &[
            "nic_devices",
            "nic_srd_send_lat",
            "nic_no_trap_for_any",
            "nic_dmabuf",
            "nic_fabric_srd_dma_buf",
            "nic_removed_under",
        ],
    ),
    (Setting::Cards, &["nic_rc_devices", "nic_rc_rping", "nic_rc_ucmatose"]),
    (
        Setting::Ports,
        &[
            "nic_mlx5_devices",
            "nic_mlx5_rc_pingpong_e",
            "nic_mlx5_write_bw",
            "nic_mlx5_xrc_domain",
            "nic_mlx5_fabric_verify",
            "nic_mlx5_fabric_ud",
            "nic_mlx5_counters",
            "nic_mlx5_no_trap",
            "nic_mlx5_supervisor_killed",
        ],
    ),
];

/// The settings of a kernel's lab that have cases which are meant by one of these words, and the words
/// to choose by. All cases on NICs are meant by a word, or by `nics`; without either a few are, on one
/// kernel, since they fetch a QEMU and build drivers.
pub(crate) fn settings(kernel: &str, words: &[String], nics: bool) -> Vec<(Setting, Vec<String>)> {
    let all = [Setting::Software, Setting::Nics, Setting::Cards, Setting::Ports];
    let few = |setting: &Setting| {
        let (_, few) = SHORT.iter().find(|(of, _)| of == setting)?;
        (kernel == SHORT_ON).then(|| few.iter().map(|word| (*word).to_owned()).collect())
    };
    let chosen = |setting: Setting| {
        let is_all = nics || !words.is_empty() || setting == Setting::Software;
        let words = if is_all { words.to_vec() } else { few(&setting)? };
        let choice = Choice { setting, words: words.clone(), from: None };
        (!choice.cases().is_empty()).then_some((setting, words))
    };
    all.into_iter().filter_map(chosen).collect()
}

/// Counts what `run` prints, which runs the cases from this one on and gives the status. When the
/// machine dies, the rest is run once more, from the case that was running: those that have ended are not
/// run again, or a failure could become a pass. The emulator's own fault says nothing of the case; after
/// any other death of the machine, the case is flaky if it passes now.
fn count(
    told: &mut dyn FnMut(Tally),
    mut run: impl FnMut(Option<&str>, &mut dyn Write) -> Result<i32>,
) -> Outcome {
    let mut heard = Heard::default();
    let mut again = false;
    loop {
        let from = heard.running.clone();
        let mut output = Lines::new(|line| {
            if heard.line(line) {
                host::show(line);
                told(heard.tally);
            }
        });
        let ended = run(from.as_deref(), &mut output);
        drop(output);
        match ended {
            Err(error)
                if error.is::<MachineDied>()
                    && !again
                    && (heard.running.is_some() || heard.ended == 0) =>
            {
                let case = heard.running.as_deref().unwrap_or("the start");
                host::show(&format!("again, from {case} on: {error:#}"));
                if error.downcast_ref() == Some(&MachineDied::OfItself) {
                    heard.suspect.clone_from(&heard.running);
                }
                again = true;
                continue;
            }
            Err(error) => host::show(&heard.broken_off(&format!("{error:#}"))),
            Ok(status) if !heard.closed => {
                let why = format!("the case's program ended with status {status}");
                host::show(&heard.broken_off(&why));
            }
            Ok(status) if status != 0 && heard.tally.failed == 0 => {
                let report =
                    format!("FAILED: all cases ended well, but their program with status {status}");
                host::show(&report);
                heard.reports.push(report);
                heard.tally += Tally::FAILED;
            }
            Ok(_) => {}
        }
        told(heard.tally);
        return heard.outcome();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::process::Stdio;

    use anyhow::bail;

    use super::*;

    const TWO: &str = "echo lab: 96 cases; echo lab: begin one; echo 'ok one [0.1 s]'
        echo lab: begin two; echo 'skipped two: no device'; echo lab: begin three; ";

    /// A stage of the lab whose machine is a shell.
    fn fake(script: &str, silence: Duration) -> Outcome {
        count(&mut |_| {}, |_, output| {
            let control = tempfile::tempdir()?;
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
            let limit = Limit::Silence(silence);
            let attended = verbgate_lab::attend(command, control.path(), limit, output)?;
            if !attended.ended {
                bail!("the command is stuck");
            }
            Ok(0)
        })
    }

    #[test]
    fn a_stage_that_goes_on_slowly_is_counted_whole() {
        let script = "echo lab: 5 cases; for i in 1 2 3 4 5; do echo lab: begin c$i; sleep 1; \
                      echo \"ok c$i [1.0 s]\"; done; echo lab: 5 passed, 0 failed, 0 skipped";
        let outcome = fake(script, Duration::from_secs(4));
        assert_eq!(outcome.tally, Tally { passed: 5, ..Tally::NONE });
    }

    #[test]
    fn a_stage_that_hangs_ends_with_what_passed() {
        let outcome = fake(&format!("{TWO} exec sleep 60"), Duration::from_secs(2));
        assert_eq!(outcome.tally, Tally { passed: 1, failed: 1, skipped: 1, flaky: 0 });
    }

    #[test]
    fn a_stage_that_dies_ends_with_what_passed() {
        for script in [TWO.to_owned(), format!("{TWO} kill -9 $$")] {
            let outcome = fake(&script, Duration::from_secs(20));
            assert_eq!(outcome.tally, Tally { passed: 1, failed: 1, skipped: 1, flaky: 0 });
        }
        let nothing = fake("exit 1", Duration::from_secs(20));
        assert_eq!(nothing.tally, Tally::FAILED);
    }

    #[test]
    fn the_case_that_hangs_is_named_and_those_after_it_are_counted() {
        let mut heard = Heard::default();
        TWO.split(['\n', ';']).for_each(|line| {
            let text = line.trim().trim_start_matches("echo ").trim_matches('\'');
            heard.line(text);
        });
        let text = heard.broken_off("the command is stuck");
        assert!(text.starts_with("FAILED three: ") && text.contains("is stuck"), "{text}");
        assert!(text.ends_with("\n    93 more cases were not run"), "{text}");
        assert_eq!(heard.tally, Tally { passed: 1, failed: 1, skipped: 1, flaky: 0 });
    }

    #[test]
    fn flaky_cases_are_listed_and_attacks_among_them_fail() {
        let script =
            "echo lab: 3 cases; echo lab: begin a; echo 'flaky a [1.0 s]: it failed'; echo '  why'
            echo lab: begin hostile_b; echo 'flaky hostile_b [1.0 s]: it failed'
            echo lab: begin c; echo ok c; echo said later; echo lab: 1 passed, 1 failed, 0 skipped";
        let outcome = fake(script, Duration::from_secs(20));
        assert_eq!(outcome.flaky, ["a", "hostile_b"]);
        assert_eq!(outcome.tally, Tally { passed: 1, failed: 1, flaky: 1, ..Tally::NONE });
        let reports = ["flaky a [1.0 s]: it failed\n  why", "flaky hostile_b [1.0 s]: it failed"];
        assert_eq!(outcome.reports, reports);
    }

    #[test]
    fn each_word_of_the_short_form_means_a_case_of_its_setting() {
        for (setting, words) in SHORT {
            for word in *words {
                let choice =
                    Choice { setting: *setting, words: vec![(*word).to_owned()], from: None };
                assert!(!choice.cases().is_empty(), "{word}");
            }
        }
        let of = |kernel| settings(kernel, &[], false).len();
        assert_eq!((of(SHORT_ON), of("6.1")), (4, 1));
    }

    /// The machine dies in the second case; the first has failed, and stays so.
    fn rest_after(died: MachineDied, case: &str) -> Outcome {
        let mut asked = Vec::new();
        let outcome = count(&mut |_| {}, |from, output| {
            asked.push(from.map(ToOwned::to_owned));
            if from.is_none() {
                write!(output, "lab: 3 cases\nlab: begin a\nFAILED a: no\nlab: begin {case}\n")?;
                return Err(anyhow::anyhow!("the end of the console").context(died));
            }
            write!(output, "lab: 2 cases\nlab: begin {case}\nok {case}\nlab: begin c\nok c\n")?;
            output.write_all(b"lab: 2 passed, 0 failed, 0 skipped\n")?;
            Ok(0)
        });
        assert_eq!(asked, [None, Some(case.to_owned())]);
        outcome
    }

    #[test]
    fn after_the_emulators_fault_only_the_rest_is_run() {
        let outcome = rest_after(MachineDied::OfStaleCode, "b");
        assert_eq!(outcome.tally, Tally { passed: 2, failed: 1, ..Tally::NONE });
    }

    #[test]
    fn a_case_in_which_the_machine_died_is_flaky_at_best() {
        let outcome = rest_after(MachineDied::OfItself, "b");
        assert_eq!(outcome.tally, Tally { passed: 1, failed: 1, flaky: 1, ..Tally::NONE });
        assert_eq!(outcome.flaky, ["b"]);
        let attack = rest_after(MachineDied::OfItself, "hostile_b");
        assert_eq!(attack.tally, Tally { passed: 1, failed: 2, ..Tally::NONE });
    }
}
