//! What a rank says by its connection to the rendezvous, from whichever of its threads.

use std::io;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::PoisonError;

use serde::Serialize;

use super::ToServer;
use super::frame;
use crate::error::Error;

/// The outward half of a link. Messages of several threads follow each other, and are never mixed.
#[derive(Debug)]
pub(crate) struct Voice {
    stream: Mutex<TcpStream>,
    at: SocketAddr,
}

impl Voice {
    pub(super) fn new(stream: TcpStream, at: SocketAddr) -> Self {
        Self { stream: Mutex::new(stream), at }
    }

    /// Says something to one rank.
    pub(crate) fn send(&self, to: u32, body: &impl Serialize) -> Result<(), Error> {
        let body = serde_json::to_value(body).map_err(|e| self.gone(&e.to_string()))?;
        self.write(&ToServer::Relay { to, body })
    }

    pub(super) fn write(&self, message: &ToServer) -> Result<(), Error> {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        frame::write(&*stream, message).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => Error::Check(format!("for the rendezvous, {error}")),
            _ => self.gone(&error.to_string()),
        })
    }

    pub(super) fn gone(&self, error: &str) -> Error {
        Error::Lost { at: self.at, error: error.to_owned() }
    }

    /// As if the rank's process had been killed.
    pub(super) fn shut(&self) {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        // Its end is gone, or has gone before.
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}
