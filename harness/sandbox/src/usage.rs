//! The use of RDMA: whether somebody who asked for RDMA makes queue pairs.
//!
//! Libraries that find something wrong with a device go on by sockets, without a word, at a tenth of
//! the speed. From outside that shows: a queue pair is never made.

use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use serde_json::json;

/// What is expected of somebody who asked for RDMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Expected {
    /// Seconds, from the start on, until the first queue pair.
    pub within: u64,
    /// Whether the program is ended when there is none then.
    pub required: bool,
}

impl Expected {
    /// The time until the first queue pair.
    #[must_use]
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.within)
    }

    /// What is said when there is none; `who` as in "the program", "container ID".
    #[must_use]
    pub fn complaint(&self, who: &str) -> String {
        let end = if self.required { "; verbgate ends it (--require-rdma)" } else { "" };
        format!(
            "{who} asked for RDMA and has made no queue pair in {} s: it may have gone on by \
             sockets; the program's own log says why (NCCL_DEBUG=INFO, UCX_LOG_LEVEL=info, \
             FI_LOG_LEVEL=info), and so may: verbgate doctor{end}",
            self.within
        )
    }

    /// The same for the audit.
    #[must_use]
    pub fn event(&self) -> Value {
        json!({
            "event": "rdma_unused", "within": self.within, "ended": self.required,
            "reason": "no queue pair was made",
            "remedy": "read the program's own log for why it left the device aside",
        })
    }
}
