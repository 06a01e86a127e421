//! A host of many RDMA devices.

use std::process::Command;

use anyhow::Result;

use crate::exec;

/// Makes devices of Soft-RoCE; `$1` is how many.
const MAKE: &str = "for n in $(seq $1); do
    ip link add many$n type veth peer name peer$n
    ip address add 10.77.$n.1/24 dev many$n
    ip link set peer$n up; ip link set many$n up
    rdma link add many$n type rxe netdev many$n
done";
/// A device goes with its interface.
const REMOVE: &str = "for n in $(seq $1); do ip link delete many$n || true; done";

/// Devices besides the world's own; removed with this.
#[derive(Debug)]
pub struct Others(u32);

impl Others {
    /// Makes so many.
    pub fn make(count: u32) -> Result<Self> {
        // Removed as far as they were made, too.
        let others = Self(count);
        others.shell(MAKE)?;
        Ok(others)
    }

    fn shell(&self, script: &str) -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-ec", script, "sh", &self.0.to_string()]);
        exec::run(command)?.expect_status(0).map(drop)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        if let Err(why) = self.shell(REMOVE) {
            eprintln!("devices are left over: {why:#}");
        }
    }
}
