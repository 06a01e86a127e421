//! A guest that obeys orders, line by line, so that a test can look around in between.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::PipeReader;
use std::io::PipeWriter;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;

use crate::crowd::limit_descriptors;
use crate::kernel::Child;
use crate::kernel::call;
use crate::kernel::dup2;
use crate::kernel::fork;
use crate::kernel::int;
use crate::kernel::outcome;
use crate::kernel::pipe;
use crate::kernel::threads;
use crate::life::request;
use crate::raw;

/// What the lines refer to.
#[derive(Default)]
struct Told {
    files: BTreeMap<String, File>,
    children: BTreeMap<String, Served>,
    callers: Vec<std::thread::JoinHandle<io::Result<i32>>>,
}

/// Reads lines from the standard input, and answers each with one.
pub(crate) fn obey(device: &str) -> Result<(), Box<dyn Error>> {
    let mut told = Told::default();
    for line in io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match told.obey(device, &words) {
            Ok(answer) => println!("{answer}"),
            Err(e) => println!("error: {e}"),
        }
    }
    Ok(())
}

/// A child that has made a request, and makes another whenever it is told.
struct Served {
    child: Child,
    tell: PipeWriter,
    heard: BufReader<PipeReader>,
}

impl Served {
    fn start(fd: i32) -> io::Result<Self> {
        let (mut told, tell) = pipe()?;
        let (mut heard, mut say) = pipe()?;
        let child = fork(|| {
            let _ = request(fd);
            let _ = say.write_all(b".");
            while told.read_exact(&mut [0]).is_ok() {
                let line = format!("{}\n", outcome(&request(fd)));
                if say.write_all(line.as_bytes()).is_err() {
                    break;
                }
            }
            0
        })?;
        heard.read_exact(&mut [0])?;
        Ok(Self { child, tell, heard: BufReader::new(heard) })
    }
}

impl Told {
    fn child(&mut self, name: &str) -> Result<&mut Served, String> {
        self.children.get_mut(name).ok_or_else(|| format!("no child {name}"))
    }

    fn file(&self, name: &str) -> Result<&File, String> {
        self.files.get(name).ok_or_else(|| format!("no file {name}"))
    }

    fn obey(&mut self, device: &str, words: &[&str]) -> Result<String, Box<dyn Error>> {
        Ok(match words {
            ["open", name] => {
                self.files.insert((*name).to_owned(), raw::open(device)?);
                "ok".to_owned()
            }
            ["request", name] => outcome(&request(self.file(name)?.as_raw_fd())).to_string(),
            ["close", name] => {
                drop(self.files.remove(*name).ok_or("no such file")?);
                "ok".to_owned()
            }
            // By a call that closes, too, but is not close(2).
            ["replace", name] => {
                let fd = self.file(name)?.as_raw_fd();
                dup2(File::open("/dev/zero")?.as_raw_fd(), fd)?;
                "ok".to_owned()
            }
            ["limit", soft] => {
                limit_descriptors(soft.parse()?)?;
                "ok".to_owned()
            }
            ["close-all", name] => {
                let fd = self.files.remove(*name).map(std::os::fd::IntoRawFd::into_raw_fd);
                call(libc::SYS_close_range, &[int(fd.ok_or("no such file")?), int(-1) >> 32, 0])?;
                "ok".to_owned()
            }
            ["duplicate", name, low] => {
                let copy = dup2(self.file(name)?.as_raw_fd(), 70)?;
                // SAFETY: dup2 has just made this number mean a file, which nothing else owns.
                let file = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(copy) };
                self.files.insert((*low).to_owned(), file);
                "ok".to_owned()
            }
            // In a thread of its own, to be waited for by `join`.
            ["call", name] => {
                let fd = self.file(name)?.as_raw_fd();
                self.callers.push(std::thread::Builder::new().spawn(move || request(fd))?);
                "ok".to_owned()
            }
            // The same, by a request that names no memory.
            ["end", name] => {
                let fd = self.file(name)?.as_raw_fd();
                self.callers.push(std::thread::Builder::new().spawn(move || raw::end().send(fd))?);
                "ok".to_owned()
            }
            ["join"] => {
                let mut ends = BTreeMap::<String, u32>::new();
                for caller in self.callers.drain(..) {
                    let end = caller.join().map_err(|_| "a caller panicked")?;
                    *ends.entry(outcome(&end).to_string()).or_default() += 1;
                }
                format!("{ends:?}")
            }
            // Callers that have returned are still in the list.
            ["stubs"] => {
                let callers = self.callers.iter().filter(|caller| !caller.is_finished()).count();
                threads().len().saturating_sub(1 + callers).to_string()
            }
            ["child", name, file] => {
                let fd = self.file(file)?.as_raw_fd();
                self.children.insert((*name).to_owned(), Served::start(fd)?);
                "ok".to_owned()
            }
            ["tell", name] => {
                self.child(name)?.tell.write_all(b".")?;
                "ok".to_owned()
            }
            ["heard", name] => {
                let mut line = String::new();
                self.child(name)?.heard.read_line(&mut line)?;
                line.trim_end().to_owned()
            }
            ["pid", name] => self.child(name)?.child.0.to_string(),
            ["stop", name] => {
                self.child(name)?.child.signal(libc::SIGSTOP);
                "ok".to_owned()
            }
            ["stopped", name] => {
                self.child(name)?.child.wait_stopped()?;
                "ok".to_owned()
            }
            ["continue", name] => {
                self.child(name)?.child.signal(libc::SIGCONT);
                "ok".to_owned()
            }
            ["kill", name] => {
                let served = self.children.remove(*name).ok_or("no such child")?;
                served.child.signal(libc::SIGKILL);
                format!("{:?}", served.child.wait()?)
            }
            ["execute"] => {
                use std::os::unix::process::CommandExt;
                let mut command = std::process::Command::new("/proc/self/exe");
                println!("ok");
                return Err(command.args(["obey", device]).exec().into());
            }
            _ => return Err(format!("what is {words:?}?").into()),
        })
    }
}
