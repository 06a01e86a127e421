//! One of many tenants of a port, small enough for sixty-four of them: says what the tenant sees and
//! has, and tries to use what the others have.

mod flood;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::os::fd::AsRawFd;
use std::time::Duration;
use std::time::Instant;

use crate::cases::command;
use crate::cases::object;
use crate::fields::Fields;
use crate::fields::payload;
use crate::fields::word;
use crate::kernel::addr;
use crate::kernel::addr_mut;
use crate::kernel::outcome;
use crate::raw;
use crate::raw::MANDATORY;
use crate::raw::Request;
use crate::scale;
use crate::scale::for_rxe;

/// `enum ib_uverbs_write_cmds`, beyond those of [`command`].
mod more {
    pub(super) const DEALLOC_PD: u64 = 4;
    pub(super) const CREATE_AH: u64 = 5;
    pub(super) const DESTROY_AH: u64 = 8;
    pub(super) const REG_MR: u64 = 9;
    pub(super) const DEREG_MR: u64 = 13;
    pub(super) const CREATE_COMP_CHANNEL: u64 = 17;
    pub(super) const CREATE_CQ: u64 = 18;
    pub(super) const DESTROY_CQ: u64 = 20;
    pub(super) const MODIFY_QP: u64 = 26;
    pub(super) const DESTROY_QP: u64 = 27;
}

/// `enum rdma_ucm_commands`.
mod manager {
    pub(super) const CREATE_ID: u32 = 0;
    pub(super) const DESTROY_ID: u32 = 1;
    pub(super) const BIND_IP: u32 = 2;
    pub(super) const LISTEN: u32 = 7;
    pub(super) const JOIN_IP_MCAST: u32 = 16;
    pub(super) const LEAVE_MCAST: u32 = 17;
}

/// `UVERBS_ATTR_UHW_OUT`, and as much of it as Soft-RoCE's objects write.
const UHW_OUT: u16 = 0x1001;
const UHW_LEN: usize = 32;
/// `struct ib_uverbs_gid_entry`.
const GID_ENTRY: usize = 32;
const GIDS: usize = 1024;
/// `RDMA_PS_TCP`.
const PORT_SPACE: u16 = 0x106;
/// `enum ib_qp_type`: RC.
const RC: u8 = 2;
/// `enum ib_qp_state`, and the masks of `enum ib_qp_attr_mask` that lead there.
const INIT: (u8, u32) = (1, 1 | 8 | 16 | 32);
const RTR: (u8, u32) = (2, 1 | 128 | 256 | 4096 | 1 << 15 | 1 << 17 | 1 << 20);
const RTS: (u8, u32) = (3, 1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16);

/// `struct sockaddr_in` in the room of a `struct sockaddr_in6`.
fn address(at: Ipv4Addr, port: u16) -> Vec<u8> {
    // AF_INET, include/linux/socket.h.
    Fields::default().short(2).bytes(&port.to_be_bytes()).bytes(&at.octets()).zeros(20).0
}

/// What a tenant has.
struct Tenant {
    verbs: File,
    manager: File,
    gid: [u8; 16],
    memory: Box<[u8; 4096]>,
    pd: u32,
    cq: u32,
    /// All that was made, to be destroyed from the last to the first: by which command, and a handle.
    made: Vec<(u64, u32)>,
}

impl Tenant {
    /// Makes objects, as many more as `extra` says, so that handles differ from tenant to tenant.
    fn new(device: &str, gid: [u8; 16], extra: u32) -> io::Result<Self> {
        let verbs = raw::open(device)?;
        scale::context(verbs.as_raw_fd())?;
        let manager = raw::open("/dev/infiniband/rdma_cm")?;
        let memory = Box::new([0; 4096]);
        let mut tenant = Self { verbs, manager, gid, memory, pd: 0, cq: 0, made: Vec::new() };
        tenant.pd = tenant.protection_domain()?;
        tenant.cq = tenant.completion_queue(8)?;
        let at = addr(&*tenant.memory);
        tenant.region(at, 4096)?;
        for _ in 0..extra {
            tenant.protection_domain()?;
        }
        Ok(tenant)
    }

    /// Has a legacy command executed; gives the core's answer.
    fn legacy(&self, command: u64, fields: Fields, answer: usize) -> io::Result<Vec<u8>> {
        let mut out = vec![0; answer];
        let mut private = [0_u8; UHW_LEN];
        let len = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        let mut request = Request::new(object::DEVICE, 0)
            .attr(0, len(&fields.0), MANDATORY, payload(&fields.0))
            .attr(2, 8, MANDATORY, command);
        if answer > 0 {
            let at = addr_mut(out.as_mut_slice());
            request = request.attr(1, len(&out), MANDATORY, at);
        }
        if matches!(command, more::CREATE_CQ | command::CREATE_QP) {
            request = request.attr(UHW_OUT, len(&private), 0, addr_mut(&mut private));
        }
        for_rxe(request).send(self.verbs.as_raw_fd())?;
        Ok(out)
    }

    /// Has an object made, which is destroyed by a command later.
    fn make(&mut self, by: u64, fields: Fields, answer: usize, end: u64) -> io::Result<Vec<u8>> {
        let made = self.legacy(by, fields, answer)?;
        self.made.push((end, word(&made, 0)));
        Ok(made)
    }

    fn protection_domain(&mut self) -> io::Result<u32> {
        let fields = Fields::default().long(0);
        let made = self.make(command::ALLOC_PD, fields, 4, more::DEALLOC_PD)?;
        Ok(word(&made, 0))
    }

    fn completion_queue(&mut self, entries: u32) -> io::Result<u32> {
        // A channel of -1 is none.
        let fields = Fields::default().zeros(16).word(entries).word(0).word(u32::MAX).word(0);
        Ok(word(&self.make(more::CREATE_CQ, fields, 8, more::DESTROY_CQ)?, 0))
    }

    fn region(&mut self, at: u64, len: u64) -> io::Result<()> {
        self.region_in(self.pd, at, len)
    }

    fn region_in(&mut self, pd: u32, at: u64, len: u64) -> io::Result<()> {
        let fields = Fields::default().long(0).long(at).long(len).long(at).word(pd).word(0);
        self.make(more::REG_MR, fields, 12, more::DEREG_MR).map(drop)
    }

    /// The handle and the number of a queue pair in a protection domain, with a completion queue.
    fn queue_pair(&self, pd: u32, cq: u32) -> io::Result<(u32, u32)> {
        let fields = Fields::default().zeros(16).word(pd).word(cq).word(cq).word(0);
        // Work requests and pieces of them; inline data, and then the type.
        let fields = fields.word(1).word(1).word(1).word(1).word(0).byte(0).byte(RC).zeros(2);
        let made = self.legacy(command::CREATE_QP, fields, 32)?;
        Ok((word(&made, 0), word(&made, 1)))
    }

    /// Makes objects upon one of a handle: a region and a queue pair in a protection domain, and a queue pair
    /// with a completion queue.
    fn borrow(&mut self, handle: u32) -> [io::Result<()>; 3] {
        let at = addr(&*self.memory);
        let region = self.region_in(handle, at, 4096);
        let made = [self.queue_pair(handle, self.cq), self.queue_pair(self.pd, handle)];
        let [in_domain, with_queue] =
            made.map(|made| made.map(|(handle, _)| self.made.push((more::DESTROY_QP, handle))));
        [region, in_domain, with_queue]
    }

    /// A protection domain, made and destroyed.
    fn turn(&self) -> io::Result<()> {
        let made = self.legacy(command::ALLOC_PD, Fields::default().long(0), 4)?;
        self.destroy(more::DEALLOC_PD, word(&made, 0))
    }

    /// So many turns, each timed: the median and the 99th of a hundred, in microseconds.
    fn timed(&self, count: usize) -> io::Result<String> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            self.turn()?;
            times.push(start.elapsed().as_micros());
        }
        times.sort_unstable();
        let of = |hundredths: usize| times.get(count * hundredths / 100).copied().unwrap_or(0);
        Ok(format!("p50 {} p99 {}", of(50), of(99)))
    }

    fn destroy(&self, end: u64, handle: u32) -> io::Result<()> {
        let fields = match end {
            more::DESTROY_CQ => Fields::default().long(0).word(handle).word(0),
            more::DESTROY_QP => Fields::default().long(0).word(handle).word(0),
            _ => Fields::default().word(handle),
        };
        let answer = match end {
            more::DESTROY_CQ => 8,
            more::DESTROY_QP => 4,
            _ => 0,
        };
        self.legacy(end, fields, answer).map(drop)
    }

    /// An address handle whose source has an index; its destination is the tenant's own address.
    fn address_handle(&self, index: u8) -> io::Result<()> {
        let fields = Fields::default()
            .zeros(16)
            .word(self.pd)
            .word(0)
            .bytes(&self.gid)
            .word(0)
            .byte(index)
            .byte(64)
            .zeros(2)
            // dlid, sl, src_path_bits, static_rate, is_global, port_num.
            .zeros(5)
            .byte(1)
            .byte(1)
            .byte(0);
        let made = self.legacy(more::CREATE_AH, fields, 4)?;
        self.destroy(more::DESTROY_AH, word(&made, 0))
    }

    /// Makes so many queue pairs, each ready to send from a source of an index, and keeps them; says how
    /// long that took.
    fn pairs(&self, count: u32, index: u8) -> io::Result<String> {
        let begun = Instant::now();
        for _ in 0..count {
            let (handle, number) = self.queue_pair(self.pd, self.cq)?;
            for step in [INIT, RTR, RTS] {
                self.modify(handle, number, index, step)?;
            }
        }
        Ok(format!("pairs after {} ms", begun.elapsed().as_millis()))
    }

    /// A queue pair whose path has a source of an index.
    fn connect(&self, index: u8) -> io::Result<()> {
        let (handle, number) = self.queue_pair(self.pd, self.cq)?;
        let step = self
            .modify(handle, number, index, INIT)
            .and_then(|()| self.modify(handle, number, index, RTR));
        self.destroy(more::DESTROY_QP, handle)?;
        step
    }

    fn modify(&self, handle: u32, number: u32, index: u8, to: (u8, u32)) -> io::Result<()> {
        let (state, mask) = to;
        let fields = Fields::default()
            .bytes(&self.gid)
            .word(0)
            .zeros(4)
            // sgid_index, hop_limit, traffic_class, sl; src_path_bits, static_rate, is_global, port_num.
            .byte(index)
            .byte(64)
            .zeros(4)
            .byte(1)
            .byte(1)
            .zeros(32)
            .word(handle)
            .word(mask)
            // qkey, rq_psn, sq_psn.
            .zeros(12)
            .word(number)
            // qp_access_flags, and the indices of partition keys.
            .word(0)
            .short(0)
            .short(0)
            // qp_state, cur_qp_state, path_mtu (1024), path_mig_state, en_sqd_async_notify.
            .byte(state)
            .byte(0)
            .byte(3)
            .zeros(2)
            // max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, and what no mask names.
            .byte(0)
            .byte(1)
            .byte(12)
            .byte(1)
            .zeros(7);
        self.legacy(more::MODIFY_QP, fields, 0).map(drop)
    }

    /// The devices and addresses that the tenant is shown.
    fn sees(&self) -> io::Result<String> {
        let mut names: Vec<String> = fs::read_dir("/sys/class/infiniband")?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        let mut entries = vec![0_u8; GIDS * GID_ENTRY];
        let mut count = [0_u64; 1];
        let len = u16::try_from(entries.len()).unwrap_or(u16::MAX);
        let request = Request::new(0, 5)
            .attr(0, 8, MANDATORY, GID_ENTRY as u64)
            .attr(1, 4, 0, 0)
            .attr(2, len, MANDATORY, addr_mut(entries.as_mut_slice()))
            .attr(3, 8, MANDATORY, addr_mut(&mut count));
        for_rxe(request).send(self.verbs.as_raw_fd())?;
        let entries = entries.chunks(GID_ENTRY).take(usize::try_from(count[0]).unwrap_or(GIDS));
        let gids: Vec<String> = entries
            .map(|entry| {
                let gid: [u8; 16] = std::array::from_fn(|place| entry[place]);
                format!("{}={}", word(entry, 4), Ipv6Addr::from(gid))
            })
            .collect();
        Ok(format!("devices {} gids {}", names.join(","), gids.join(",")))
    }

    /// Gives the connection manager a command.
    fn ask(&self, number: u32, fields: Fields, answer: &mut [u8]) -> io::Result<()> {
        let len = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        let head = Fields::default().word(number).short(len(&fields.0)).short(len(answer));
        (&self.manager).write_all(&head.bytes(&fields.0).0)
    }

    fn id(&self) -> io::Result<u32> {
        self.id_of(PORT_SPACE, RC)
    }

    fn id_of(&self, space: u16, kind: u8) -> io::Result<u32> {
        let mut answer = [0; 4];
        let fields = Fields::default().long(0).long(addr_mut(&mut answer));
        let fields = fields.short(space).byte(kind).zeros(5);
        self.ask(manager::CREATE_ID, fields, &mut answer)?;
        Ok(word(&answer, 0))
    }

    fn destroy_id(&self, id: u32) -> io::Result<()> {
        let mut answer = [0; 4];
        let fields = Fields::default().long(addr_mut(&mut answer)).word(id).word(0);
        self.ask(manager::DESTROY_ID, fields, &mut answer)
    }

    fn bind(&self, id: u32, at: Ipv4Addr, port: u16) -> io::Result<()> {
        let fields = Fields::default().long(0).bytes(&address(at, port)).word(id);
        self.ask(manager::BIND_IP, fields, &mut [])
    }

    /// Listens at an address and a port, and ends that again.
    fn listen(&self, at: &str, port: u16) -> Result<io::Result<()>, Box<dyn Error>> {
        let id = self.id()?;
        let listens = self
            .bind(id, at.parse()?, port)
            .and_then(|()| self.ask(manager::LISTEN, Fields::default().word(id).word(1), &mut []));
        self.destroy_id(id)?;
        Ok(listens)
    }

    /// Obeys a line, and gives the answer.
    fn obey(&mut self, line: &str) -> Result<String, Box<dyn Error>> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (what, rest) = words.split_first().ok_or("an empty line")?;
        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        let mut end = |result: &io::Result<()>| {
            *ends.entry(outcome(result).to_string()).or_default() += 1;
        };
        match *what {
            "speak" => {
                for index in rest {
                    let index = index.parse()?;
                    end(&self.address_handle(index));
                    end(&self.connect(index));
                }
            }
            "destroy" => {
                for handle in rest {
                    let handle = handle.parse()?;
                    for by in [more::DEALLOC_PD, more::DEREG_MR, more::DESTROY_CQ, more::DESTROY_QP]
                    {
                        end(&self.destroy(by, handle));
                    }
                }
            }
            "borrow" => {
                for handle in rest {
                    self.borrow(handle.parse()?).iter().for_each(&mut end);
                }
            }
            "ids" => {
                for id in rest {
                    end(&self.destroy_id(id.parse()?));
                }
            }
            "listen" => {
                let (port, addresses) = rest.split_first().ok_or("no port")?;
                for at in addresses {
                    end(&self.listen(at, port.parse()?)?);
                }
            }
            "pairs" => {
                let (count, index) = rest.split_first().ok_or("no count")?;
                let index = index.first().ok_or("no index")?;
                return Ok(self.pairs(count.parse()?, index.parse()?)?);
            }
            "spin" => {
                let count = rest.first().ok_or("no count")?;
                return Ok(self.timed(count.parse()?)?);
            }
            "flood" => {
                let seconds = rest.first().ok_or("no time")?;
                return Ok(self.flood(Duration::from_secs(seconds.parse()?))?);
            }
            "free" => {
                while let Some((by, handle)) = self.made.pop() {
                    end(&self.destroy(by, handle));
                }
            }
            _ => return Err("no such order".into()),
        }
        let ends: Vec<String> = ends.iter().map(|(end, count)| format!("{end} {count}")).collect();
        Ok(ends.join(" "))
    }
}

/// A tenant with an address (a GID), and so many protection domains more than others have. Prints what the
/// tenant sees and has; then takes lines, and answers each with how often the calls ended how:
/// `speak INDEX...` (address handles and queue pairs from these sources), `destroy HANDLE...`, `borrow
/// HANDLE...` (makes objects upon these), `ids ID...` (destroys identifiers of the connection manager),
/// `listen PORT ADDRESS...`, `free`; or `pairs COUNT INDEX` with how long queue pairs took, `spin COUNT` with
/// how long turns took, and `flood SECONDS` with what it got.
pub(crate) fn tenant(device: &str, gid: &str, extra: &str) -> Result<(), Box<dyn Error>> {
    let gid: Ipv6Addr = gid.parse()?;
    let mut tenant = Tenant::new(device, gid.octets(), extra.parse()?)?;
    let last = tenant.made.iter().map(|(_, handle)| handle).max().unwrap_or(&0);
    println!("{} last {last} id {}", tenant.sees()?, tenant.id()?);
    for line in io::stdin().lines() {
        println!("{}", tenant.obey(&line?)?);
    }
    Ok(())
}
