//! The broker of the lab's machines: boots them for the tests of `tests/tests/lab.rs`, which ask for trials by name,
//! and has each machine run one case after another.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufRead as _;
use std::io::BufReader;
use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use verbgate_lab::Arch;
use verbgate_lab::Kernel;
use verbgate_lab::MachineDied;
use verbgate_lab::Nic;
use verbgate_tests::cases::Device;
use verbgate_tests::said::Said;
use verbgate_tests::trial;
use verbgate_tests::trial::Trial;

use crate::guest::Lines;
use crate::guest::Missing;
use crate::guest::Programs;
use crate::guestbin;
use crate::host::target_directory;
use crate::machines;

/// How often whoever waits hears that the broker lives.
const ALIVE: Duration = Duration::from_secs(2);

/// Machines and programs, shared by all who serve a test.
#[derive(Default)]
pub(crate) struct Broker {
    amd64: OnceLock<Result<Programs, String>>,
    arm64: OnceLock<Result<Programs, String>>,
    free: Mutex<Vec<Machine>>,
}

/// The NICs of a machine for a device: two, so that data goes over a wire.
pub(crate) fn nics(device: Device) -> &'static [Nic] {
    match device {
        Device::Rxe => &[],
        Device::Efa => &[Nic::Efa, Nic::Efa],
        Device::Erdma => &[Nic::Erdma, Nic::Erdma],
        Device::Mlx5 => &[Nic::Mlx5, Nic::Mlx5],
    }
}

impl Broker {
    /// A broker that answers at the tests' socket until the process ends.
    pub(crate) fn start() -> Result<Arc<Self>> {
        let broker = Arc::new(Self::default());
        let folder = target_directory()?.join("tmp");
        fs::create_dir_all(&folder)?;
        let socket = folder.join("lab.sock");
        // An earlier broker's.
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)
            .with_context(|| format!("cannot listen at {}", socket.display()))?;
        let serving = Arc::clone(&broker);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let broker = Arc::clone(&serving);
                // A test that has gone away hears nothing.
                thread::spawn(move || broker.serve(stream));
            }
        });
        Ok(broker)
    }

    /// The programs for a processor, built once.
    pub(crate) fn programs(&self, arch: Arch) -> Result<&Programs, String> {
        let (built, arch) = match arch {
            Arch::Amd64 => (&self.amd64, arch),
            Arch::Arm64 => (&self.arm64, arch),
        };
        let build = || Programs::build_for(arch).map_err(|error| format!("{error:#}"));
        built.get_or_init(build).as_ref().map_err(Clone::clone)
    }

    fn serve(self: &Arc<Self>, mut test: UnixStream) -> Result<()> {
        let mut name = String::new();
        BufReader::new(&test).read_line(&mut name)?;
        let (answer, answered) = mpsc::channel();
        let broker = Arc::clone(self);
        // What boots and builds says nothing for minutes.
        thread::spawn(move || answer.send(broker.run(name.trim())));
        loop {
            match answered.recv_timeout(ALIVE) {
                Ok(end) => return Ok(writeln!(test, "{end}")?),
                Err(RecvTimeoutError::Timeout) => writeln!(test, "{}", Said::Alive)?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Runs a trial: once more if the emulator's own fault ended the machine, which says nothing of the case.
    pub(crate) fn run(self: &Arc<Self>, name: &str) -> Said {
        let Some(trial) = Trial::find(name) else {
            return Said::Failed(format!("there is no trial {name}"));
        };
        let mut end = self.once(trial);
        if end.as_ref().is_err_and(|why| why.downcast_ref() == Some(&MachineDied::OfStaleCode)) {
            end = self.once(trial);
        }
        match end {
            Ok(said) => said,
            Err(error) if error.is::<Missing>() => {
                Said::Skipped(format!("{:#}", error).replace('\n', " "))
            }
            Err(error) => Said::Failed(format!("{error:#}")),
        }
    }

    fn once(self: &Arc<Self>, trial: Trial) -> Result<Said> {
        let kernel = Kernel::find(trial.kernel)?;
        if kernel.arch == Arch::Arm64 {
            guestbin::cross().context(Missing)?;
        }
        if trial.is_of_two_machines() {
            let programs = self.programs(kernel.arch).map_err(anyhow::Error::msg)?;
            return machines::run(programs, kernel, trial.case).map(|()| Said::Passed);
        }
        let machine = self.machine(kernel, trial.device)?;
        machine.cases.send(trial.case.to_owned()).context("the machine has ended")?;
        loop {
            match machine.said.recv().context("the machine has ended")? {
                Ok(Said::Alive) => {}
                Ok(end) => {
                    self.free().push(machine);
                    return Ok(end);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A machine that is free, or a new one. In a group of nextest's (.config/nextest.toml) tests come device by device,
    /// so free machines of the group's other devices have done their work, and end.
    fn machine(self: &Arc<Self>, kernel: &'static Kernel, device: Device) -> Result<Machine> {
        let mut free = self.free();
        while let Some(at) = free.iter().position(|one| one.of == (kernel.name, device)) {
            let machine = free.swap_remove(at);
            // Nothing was said after the last case, or the machine has died since.
            if matches!(machine.said.try_recv(), Err(mpsc::TryRecvError::Empty)) {
                return Ok(machine);
            }
        }
        let group = |name: &'static str| name.trim_start_matches("arm64-");
        free.retain(|one| group(one.of.0) != group(kernel.name));
        drop(free);
        let programs = self.programs(kernel.arch).map_err(anyhow::Error::msg)?;
        Ok(Machine::boot(programs.clone(), kernel, device))
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Machine>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A machine; the machine ends when this is dropped.
struct Machine {
    of: (&'static str, Device),
    cases: Sender<String>,
    said: Receiver<Result<Said>>,
}

impl Machine {
    fn boot(programs: Programs, kernel: &'static Kernel, device: Device) -> Self {
        let (cases, input) = mpsc::channel();
        let (says, said) = mpsc::channel();
        thread::spawn(move || {
            let mut output = Lines::new(|line| {
                // Nobody listens to a machine that was given up.
                match Said::read(line) {
                    Some(word) => drop(says.send(Ok(word))),
                    None => println!("    {} {}: {line}", kernel.name, device.name()),
                }
            });
            let ended = programs.serve(kernel, nics(device), &input, &mut output);
            drop(output);
            let error = match ended {
                Ok(status) => anyhow::anyhow!("the machine's program ended with status {status}"),
                Err(error) => error,
            };
            let _ = says.send(Err(error));
        });
        Self { of: (kernel.name, device), cases, said }
    }
}

/// Trials whose names hold the words, in a table: name, whether `cargo xtask test` runs the trial, and why.
///
/// # Errors
/// No name holds them; names that are like the first are in the error.
pub(crate) fn table(words: &[String]) -> Result<String> {
    let is_meant = |trial: &Trial| words.iter().all(|word| trial.to_string().contains(word));
    let mut table = verbgate_tests::table::Table::new(&["trial", "run by", "because of"]);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for trial in trial::all().into_iter().filter(is_meant) {
        let by = if trial.why.is_some() { "default" } else { "--all" };
        *counts.entry(by).or_default() += 1;
        table.row(&[trial.to_string(), by.to_owned(), trial.why.unwrap_or_default().to_owned()]);
    }
    if counts.is_empty() {
        let word = words.first().map(String::as_str).unwrap_or_default();
        find(word)?;
    }
    let counts: Vec<String> = counts.iter().map(|(by, count)| format!("{count} {by}")).collect();
    Ok(format!("{table}\n{}", counts.join(", ")))
}

/// The trial of a name, or an error with the names most like it.
pub(crate) fn find(name: &str) -> Result<Trial> {
    Trial::find(name).with_context(|| {
        let mut all: Vec<String> = trial::all().iter().map(Trial::to_string).collect();
        all.sort_by_cached_key(|known| {
            // A case's bare name is as near as its distance to the case.
            let case = known.rsplit("::").next().unwrap_or_default();
            strsim::damerau_levenshtein(known, name).min(strsim::damerau_levenshtein(case, name))
        });
        all.truncate(3);
        format!("there is no trial {name}: did you mean {}?", all.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_near_are_suggested() {
        let error = find("6.12::rxe::rpin").unwrap_err().to_string();
        assert!(error.contains("did you mean 6.12::rxe::rping"), "{error}");
        assert!(find("rping").unwrap_err().to_string().contains("7.2::rxe::rping"));
        assert!(find("7.2::rxe::rping").is_ok());
    }

    #[test]
    fn each_trial_has_its_kernel_in_the_lab() {
        for trial in trial::all() {
            Kernel::find(trial.kernel).unwrap();
        }
        let table = table(&["two_machines".to_owned(), "6.12".to_owned()]).unwrap();
        assert!(
            table.contains("6.12::mlx5::two_machines_mlx5") && table.contains("1 default"),
            "{table}"
        );
    }
}
