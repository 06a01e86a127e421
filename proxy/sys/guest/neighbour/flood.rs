//! A flood: of everything as much as there is.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::os::fd::FromRawFd;
use std::time::Duration;
use std::time::Instant;

use memmap2::MmapMut;

use super::Tenant;
use super::address;
use super::manager;
use super::more;
use crate::fields::Fields;
use crate::fields::word;
use crate::kernel::addr_mut;

/// Bytes of a region, entries of a completion queue, turns between them.
const BIG: usize = 16 << 20;
const MANY: u32 = 4096;
const TURNS: usize = 50;
/// `RDMA_PS_UDP`, and `enum ib_qp_type`: UD.
const DATAGRAMS: (u16, u8) = (0x0111, 4);

impl Tenant {
    /// Takes of everything until it is refused, again and again for so long, and keeps what it got.
    pub(super) fn flood(&mut self, time: Duration) -> io::Result<String> {
        // Its own, so that what is locked by a region is told from what is written.
        let memory = MmapMut::map_anon(BIG)?;
        let at = memory.as_ptr().expose_provenance() as u64;
        std::mem::forget(memory);
        let caller = self.caller();
        let end = Instant::now() + time;
        let (mut turns, mut made, mut refused, mut groups) = (0, 0, 0, 0);
        while Instant::now() < end {
            let joined = match &caller {
                Ok(id) => self.join(*id, groups),
                Err(e) => Err(io::Error::new(e.kind(), "no address")),
            };
            groups += u32::from(joined.is_ok());
            let ends = [
                self.protection_domain().map(drop),
                self.completion_queue(MANY).map(drop),
                self.region(at, BIG as u64),
                self.id().map(drop),
                self.address_handle(0),
                self.events(),
                joined,
            ];
            made += ends.iter().filter(|end| end.is_ok()).count();
            refused += ends.iter().filter(|end| end.is_err()).count();
            for _ in 0..TURNS {
                match self.turn() {
                    Ok(()) => turns += 1,
                    Err(_) => refused += 1,
                }
            }
        }
        Ok(format!("made {made} turns {turns} groups {groups} refused {refused}"))
    }

    /// A descriptor for events of completion queues, made and closed.
    fn events(&self) -> io::Result<()> {
        let made = self.legacy(more::CREATE_COMP_CHANNEL, Fields::default().long(0), 4)?;
        // SAFETY: the kernel has just made the descriptor for this process, and nobody else knows it.
        drop(unsafe { File::from_raw_fd(word(&made, 0).cast_signed()) });
        Ok(())
    }

    /// An identifier that speaks datagrams from the tenant's own address.
    fn caller(&self) -> io::Result<u32> {
        let own = Ipv6Addr::from(self.gid).to_ipv4_mapped();
        let own = own.ok_or_else(|| io::Error::other("the tenant has no address of version 4"))?;
        let (space, kind) = DATAGRAMS;
        let id = self.id_of(space, kind)?;
        self.bind(id, own, 0)?;
        Ok(id)
    }

    /// Joins a multicast group of a number; every second one is left again.
    fn join(&self, id: u32, number: u32) -> io::Result<()> {
        let [_, b, c, d] = number.to_be_bytes();
        let group = address(Ipv4Addr::new(239, b, c, d), 0);
        let mut answer = [0; 4];
        let fields = Fields::default().long(addr_mut(&mut answer)).long(0).bytes(&group).word(id);
        self.ask(manager::JOIN_IP_MCAST, fields, &mut answer)?;
        if number.is_multiple_of(2) {
            return Ok(());
        }
        let joined = word(&answer, 0);
        let mut answer = [0; 4];
        let fields = Fields::default().long(addr_mut(&mut answer)).word(joined).word(0);
        self.ask(manager::LEAVE_MCAST, fields, &mut answer)
    }
}
