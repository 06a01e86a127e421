//! A network between processes: a folder in which each port has a Unix socket, called after the port's
//! address. Whoever has a message for an address that is not here writes the message to that socket.
//!
//! A message is a frame: its length as four bytes, the lowest first, and its fields as `postcard` writes
//! them. All processes are of one build, so frames have no version.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::io::Read as _;
use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::thread;

use parking_lot::Mutex;
use rustix::net::Shutdown;

use crate::message::Address;
use crate::message::Message;

/// Bytes of a frame: the longest message of a queue pair, and its other fields.
const LONGEST: u32 = (1 << 31) + 4096;

/// Who takes a message that has arrived; false when nobody is left.
pub(crate) type Arrive = Arc<dyn Fn(Message) -> bool + Send + Sync>;

/// The network, as one process has it.
pub(crate) struct Far {
    folder: PathBuf,
    arrive: Arrive,
    /// The sockets of this process's ports.
    here: Mutex<BTreeMap<Address, UnixListener>>,
    /// The threads that write to ports elsewhere. They keep what is not written yet, so that two processes
    /// that write to each other never wait for each other.
    there: Mutex<BTreeMap<Address, Sender<Message>>>,
}

impl std::fmt::Debug for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Far").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Far {
    pub(crate) fn new(folder: PathBuf, arrive: Arrive) -> Self {
        Self { folder, arrive, here: Mutex::default(), there: Mutex::default() }
    }

    fn socket(&self, address: Address) -> PathBuf {
        self.folder.join(format!("{address:?}"))
    }

    /// Makes the socket of a port; one that a dead process has left is replaced.
    ///
    /// # Errors
    /// The folder is missing, or its path is too long for a socket.
    pub(crate) fn plug(&self, address: Address) -> io::Result<()> {
        let path = self.socket(address);
        self.unplug(address);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        let (arrive, own) = (Arc::clone(&self.arrive), listener.try_clone()?);
        thread::spawn(move || {
            while let Ok((stream, _)) = own.accept() {
                let arrive = Arc::clone(&arrive);
                thread::spawn(move || read(stream, &arrive));
            }
        });
        self.here.lock().insert(address, listener);
        Ok(())
    }

    pub(crate) fn unplug(&self, address: Address) {
        let Some(listener) = self.here.lock().remove(&address) else { return };
        // The thread that accepts wakes up and ends.
        let _ = rustix::net::shutdown(&listener, Shutdown::Both);
        let _ = fs::remove_file(self.socket(address));
    }

    /// Sends a message to a port of another process; gives the message back if there is none.
    pub(crate) fn send(&self, message: Message) -> Result<(), Message> {
        let mut there = self.there.lock();
        let message = match there.get(&message.to) {
            None => message,
            Some(known) => match known.send(message) {
                Ok(()) => return Ok(()),
                // The process that was there has ended; another one may be there by now.
                Err(mpsc::SendError(message)) => message,
            },
        };
        let to = message.to;
        let Ok(stream) = UnixStream::connect(self.socket(to)) else {
            there.remove(&to);
            return Err(message);
        };
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || write(stream, &messages));
        let sent = sender.send(message).map_err(|mpsc::SendError(message)| message);
        there.insert(to, sender);
        sent
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let here: Vec<Address> = self.here.lock().keys().copied().collect();
        here.into_iter().for_each(|address| self.unplug(address));
    }
}

/// What is on its way when the other process ends is lost, as on any network.
fn write(mut stream: UnixStream, messages: &Receiver<Message>) {
    for message in messages {
        let Ok(bytes) = postcard::to_stdvec(&message) else { return };
        let Ok(length) = u32::try_from(bytes.len()) else { return };
        if stream.write_all(&[&length.to_le_bytes()[..], &bytes].concat()).is_err() {
            return;
        }
    }
}

fn read(mut stream: UnixStream, arrive: &Arrive) {
    let mut length = [0; 4];
    while stream.read_exact(&mut length).is_ok() {
        let length = u32::from_le_bytes(length);
        if length > LONGEST {
            return;
        }
        let mut bytes = Vec::new();
        match (&mut stream).take(length.into()).read_to_end(&mut bytes) {
            Ok(count) if u32::try_from(count) == Ok(length) => {}
            _ => return,
        }
        let Ok(message) = postcard::from_bytes(&bytes) else { return };
        if !arrive(message) {
            return;
        }
    }
}
