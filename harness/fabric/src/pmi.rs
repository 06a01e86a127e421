//! PMI-1 as its clients speak it ("simple PMI"): lines of `name=value` on a descriptor that the
//! launcher gives to each rank (`$PMI_FD`: MPICH's and Intel MPI's Hydra, Flux). One value goes from
//! rank 0 to all.

use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;
use std::time::Instant;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::poll;

use verbgate_sys::GuestFd;
use verbgate_sys::Tgid;
use verbgate_sys::process::PidFd;

/// The name of the value.
const KEY: &str = "verbgate-rendezvous";
/// No line of PMI-1 is as long.
const LONGEST: usize = 8192;

/// This end of the launcher's connection.
struct Pmi<T> {
    stream: T,
    deadline: Instant,
}

/// Where rank 0 listens. Rank 0 says it; all wait for each other.
pub(super) fn exchange(number: &str, say: Option<&str>, patience: Duration) -> io::Result<String> {
    let invalid = |_| io::Error::new(io::ErrorKind::InvalidInput, "$PMI_FD is no number");
    let number: i32 = number.parse().map_err(invalid)?;
    let me = i32::try_from(std::process::id()).map_err(io::Error::other)?;
    // A descriptor of that number is whatever the launcher has left: a duplicate is this program's own.
    let own = PidFd::open(Tgid(me))?.get_fd(GuestFd(number))?;
    let mut pmi = Pmi { stream: File::from(own), deadline: Instant::now() + patience };
    pmi.exchange(say)
}

impl<T: Read + Write + AsFd> Pmi<T> {
    fn exchange(&mut self, say: Option<&str>) -> io::Result<String> {
        self.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let kvs = self.ask("cmd=get_my_kvsname", "my_kvsname")?;
        let kvs = value(&kvs, "kvsname")?.to_owned();
        if let Some(say) = say {
            self.ask(&format!("cmd=put kvsname={kvs} key={KEY} value={say}"), "put_result")?;
        }
        self.ask("cmd=barrier_in", "barrier_out")?;
        let got = self.ask(&format!("cmd=get kvsname={kvs} key={KEY}"), "get_result")?;
        let found = value(&got, "value")?.to_owned();
        // Or the launcher takes the end of this program for a crash.
        self.ask("cmd=finalize", "finalize_ack")?;
        Ok(found)
    }

    /// One request, and the answer to it.
    fn ask(&mut self, request: &str, expected: &str) -> io::Result<String> {
        self.stream.write_all(format!("{request}\n").as_bytes())?;
        let line = self.line()?;
        let failed = value(&line, "rc").is_ok_and(|rc| rc != "0");
        if failed || value(&line, "cmd")? != expected {
            return Err(io::Error::other(format!("it answers {line:?} to {request:?}")));
        }
        Ok(line)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                Ok(0) => {
                    let words = "other ranks have not come to PMI's barrier in time";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, words));
                }
                Err(rustix::io::Errno::INTR) => continue,
                other => drop(other?),
            }
            let mut byte = [0];
            match self.stream.read(&mut byte)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ if byte == *b"\n" => break,
                _ if line.len() >= LONGEST => {
                    return Err(io::Error::other("a line without an end"));
                }
                _ => line.extend(byte),
            }
        }
        String::from_utf8(line).map_err(io::Error::other)
    }
}

/// Of `cmd=get_result rc=0 msg=success value=10.0.0.1:5`.
fn value<'a>(line: &'a str, name: &str) -> io::Result<&'a str> {
    let mut words = line.split_ascii_whitespace();
    let found = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    found.ok_or_else(|| io::Error::other(format!("it answers {line:?}, without {name}")))
}

#[cfg(test)]
mod tests {
    use std::io::BufRead as _;
    use std::io::BufReader;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    /// A launcher of one rank, which answers what it is told to; what it was asked.
    fn launched(say: Option<&str>, answers: &'static [&str]) -> (io::Result<String>, Vec<String>) {
        let (mine, theirs) = UnixStream::pair().unwrap();
        let launcher = thread::spawn(move || {
            let (mut asked, mut reader) = (Vec::new(), BufReader::new(theirs));
            for answer in answers {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                asked.push(line.trim_end().to_owned());
                writeln!(reader.get_mut(), "{answer}").unwrap();
            }
            asked
        });
        let deadline = Instant::now() + Duration::from_secs(600);
        let mut pmi = Pmi { stream: mine, deadline };
        let got = pmi.exchange(say);
        drop(pmi);
        (got, launcher.join().unwrap())
    }

    #[test]
    fn rank_0_says_where_it_listens_and_all_hear_it() {
        const ANSWERS: &[&str] = &[
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "cmd=my_kvsname kvsname=kvs_7_0",
            "cmd=put_result rc=0 msg=success",
            "cmd=barrier_out",
            "cmd=get_result rc=0 msg=success value=10.0.0.1:5,127.0.0.1:5",
            "cmd=finalize_ack",
        ];
        let (got, asked) = launched(Some("10.0.0.1:5,127.0.0.1:5"), ANSWERS);
        assert_eq!(got.unwrap(), "10.0.0.1:5,127.0.0.1:5");
        assert_eq!(
            asked[2],
            "cmd=put kvsname=kvs_7_0 key=verbgate-rendezvous value=10.0.0.1:5,127.0.0.1:5"
        );
        assert_eq!(asked[5], "cmd=finalize");
    }

    #[test]
    fn what_the_launcher_refuses_is_told() {
        let (got, _) = launched(None, &["cmd=response_to_init rc=-1"]);
        assert!(got.unwrap_err().to_string().contains("rc=-1"));
        let (got, _) = launched(None, &[]);
        assert!(got.is_err());
        let error = exchange("x", None, Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("$PMI_FD"), "{error}");
        // Nobody answers.
        let (mine, _theirs) = UnixStream::pair().unwrap();
        let error = Pmi { stream: mine, deadline: Instant::now() }.exchange(None).unwrap_err();
        assert!(error.to_string().contains("barrier"), "{error}");
    }
}
