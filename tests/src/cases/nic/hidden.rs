//! The rule that hides a NIC which a sandbox could only plan with: a RoCE card whose GIDs are of an interface in
//! another network namespace, where the kernel shows the card all the same. The card is Soft-RoCE upon a card's
//! interface, in that card's place of the PCI tree.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::CONTROL;
use super::Case;
use super::interface;
use crate::cases::Verdict;
use crate::cases::nodes::Namespace;
use crate::exec;
use crate::exec::Ended;
use crate::world::World;

const DEVICE: &str = "rxe9";
const NAMESPACE: &str = "verbgate-elsewhere";
/// What a program sees of devices: in sysfs, by RDMA netlink, and by libibverbs.
const LOOK: &str = "echo sysfs $(ls /sys/class/infiniband); \
                    echo netlink $(rdma dev show | sed 's/^[0-9]*: \\([^:]*\\):.*/\\1/'); \
                    echo verbs $(ibv_devices | sed '1,2d' | awk '{print $1}')";

pub(super) fn connected() -> Vec<Case> {
    vec![Case::new("nic_rc_without_a_usable_gid_is_hidden", hidden)]
}

/// The device, until this is dropped.
struct Software;

impl Software {
    fn new(upon: &str) -> Result<Self> {
        let control = std::env::var_os(CONTROL).context("this is no lab")?;
        let module = Path::new(&control).join("modules").join("rdma_rxe.ko");
        // The kernel's own goes. Kernels differ in which of the modules that this needs there are.
        let script = format!(
            "modprobe -qr rdma_rxe; modprobe -qa ib_uverbs udp_tunnel ip6_udp_tunnel crc32; insmod {} && \
             rdma link add {DEVICE} type rxe netdev {upon}",
            module.display()
        );
        sh(&script)?.expect_status(0)?;
        Ok(Self)
    }
}

impl Drop for Software {
    fn drop(&mut self) {
        let _ = sh(&format!("rdma link delete {DEVICE}; rmmod rdma_rxe"));
    }
}

fn sh(script: &str) -> Result<Ended> {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    exec::run(command)
}

fn hidden(world: &World) -> Result<Verdict> {
    let _software = Software::new(&interface(world)?)?;
    let function = sh(&format!("readlink -f /sys/class/infiniband/{DEVICE}/device"))?.stdout;
    if !function.contains("/pci0000:") {
        bail!("{DEVICE} has no place in the PCI tree: {function:?}");
    }
    let elsewhere = Namespace::new(NAMESPACE)?;
    let software = World::look(Some(DEVICE))?;
    let look = ["sh", "-c", LOOK];
    let mut native = Command::new("ip");
    native.args(["netns", "exec", elsewhere.name()]).args(look);
    let of = |command| -> Result<[bool; 3]> {
        let ended = exec::run(command)?.expect_status(0)?;
        Ok(["sysfs", "netlink", "verbs"].map(|way| {
            let line = ended.stdout.lines().find(|line| line.starts_with(way));
            line.is_some_and(|line| line.split_whitespace().any(|name| name == DEVICE))
        }))
    };
    let path = elsewhere.path();
    for (place, command, expected) in [
        ("natively, in another namespace", native, [true; 3]),
        ("in a sandbox that has the interface", software.sandbox(&[], &look), [true; 3]),
        ("in a sandbox without it", software.sandbox(&["--netns", &path], &look), [false; 3]),
    ] {
        let seen = of(command)?;
        if seen != expected {
            bail!("{place}, sysfs, netlink and libibverbs show {DEVICE}: {seen:?}");
        }
    }
    Ok(Verdict::Ok)
}
