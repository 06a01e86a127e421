//! Vet: decode, policy and GIDs, as one function of the copied bytes and the grant.

pub mod offline;

use std::fmt;

use verbgate_abi::Errno;
use verbgate_abi::ids;
use verbgate_abi::qp_types;
use verbgate_abi::request::Request;
use verbgate_abi::values::Meaning;
use verbgate_abi::values::Value;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GidIndex;
use verbgate_sys::mem::GuestMemory;

use crate::decode;
use crate::fetch::Copied;
use crate::fetch::Form;
use crate::gids::GidPatch;
use crate::gids::GidView;
use crate::gids::Judged;
use crate::gids::Seen;
use crate::observe;
use crate::outcome::Outcome;
use crate::pace;
use crate::policy;
use crate::policy::AskedFor;
use crate::policy::Policy;

/// `IB_QPT_UD`, include/rdma/ib_verbs.h.
const UD: u64 = 4;

/// Drivers whose datagrams name an address handle that the kernel has made, with a source that was judged.
/// The work requests of mlx4, mlx5, hns, vmw_pvrdma and Soft-RoCE have the index of the source instead
/// (rdma-core, `providers/*`); of others that is not known.
const CHECKED: [DriverId; 4] = [DriverId::EFA, DriverId::IRDMA, DriverId::BNXT_RE, DriverId::IONIC];

/// Why a request is not executed: told, counted and answered in one place
/// ([`Supervisor::refused`](crate::Supervisor)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// For counters, and whoever reads a trace.
    pub reason: &'static str,
    /// What the guest sees.
    pub errno: Errno,
    /// Whether the operator should know; programs find out what a kernel can do by making requests
    /// that fail.
    pub warns: bool,
    /// What is said of it, the caller aside.
    pub line: String,
}

impl Refusal {
    /// One that programs cause in passing.
    #[must_use]
    pub fn note(reason: &'static str, errno: Errno, line: impl fmt::Display) -> Self {
        Self { reason, errno, warns: false, line: line.to_string() }
    }

    /// One that the operator should know of.
    #[must_use]
    pub fn warn(reason: &'static str, errno: Errno, line: impl fmt::Display) -> Self {
        Self { reason, errno, warns: true, line: line.to_string() }
    }
}

/// What requests on a ucontext are held against.
#[derive(Debug)]
pub struct Rules<'a> {
    /// The driver of the device, which the kernel compares with the request's.
    pub driver: DriverId,
    /// What may be asked for.
    pub policy: &'a Policy,
    /// What must grant a request, too, since the operator narrowed what runs.
    pub narrowed: Option<&'a Policy>,
    /// Whether the operator has taken the device away since.
    pub withdrawn: bool,
    /// Ports that the request may name; all when there are none.
    pub ports: Option<&'a [u32]>,
    /// Which GIDs the guest sees; all when there is none.
    pub gids: Option<&'a GidView>,
    /// The device's number.
    pub rdev: (u32, u32),
    /// Whether the kernel was asked to make the ucontext.
    pub asked: bool,
}

impl Rules<'_> {
    /// Whether the policies grant a request.
    pub(crate) fn grants(&self, request: &Request) -> bool {
        std::iter::once(self.policy).chain(self.narrowed).all(|it| it.check(request).is_ok())
    }

    /// Refuses a request that speaks by a port, a type of GID or a P_Key that the tenant has not.
    fn check_place(&self, request: &Request) -> Result<(), Refusal> {
        let policies = || std::iter::once(self.policy).chain(self.narrowed);
        let any_type = policies().all(Policy::grants_all_gid_types);
        let any_pkey = policies().all(Policy::grants_all_pkeys);
        if self.ports.is_none() && any_type && any_pkey {
            return Ok(());
        }
        if let Some(refusal) = self.ports.and_then(|ports| refused_port(request, ports)) {
            return Err(refusal);
        }
        for value in request.values() {
            match value.meaning {
                Meaning::SourceGid if !any_type => {
                    let kind = self.gid_type(&value);
                    if !kind.is_some_and(|kind| policies().all(|one| one.grants_gid_type(kind))) {
                        return Err(of_place("GID type not granted", request, &value));
                    }
                }
                Meaning::Pkey if !any_pkey => {
                    let pkeys = self.pkeys(&value);
                    let passes = |pkey| policies().all(|one| one.grants_pkey(pkey));
                    // The index of no entry is refused here, too: nobody can tell what comes there.
                    if pkeys.is_empty() || !pkeys.into_iter().all(passes) {
                        return Err(of_place("P_Key not granted", request, &value));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses a queue pair that reaches anybody where others speak by a port of the device: there, senders
    /// write the index of the source GID into the work request, and nobody checks the index.
    fn check_datagrams(&self, request: &Request) -> Result<(), Refusal> {
        let Some((name, reason)) = datagram(request) else { return Ok(()) };
        let mut policies = std::iter::once(self.policy).chain(self.narrowed);
        if CHECKED.contains(&self.driver)
            || policies.all(Policy::grants_shared_ud)
            || !self.gids.is_some_and(|gids| gids.shares(self.rdev, self.ports))
        {
            return Ok(());
        }
        let line = format!(
            "{}: queue pair type {name} on a port by which others speak: its sender writes the index \
             of the source GID into the work request, which nobody checks, and could speak as another \
             tenant; use RC, give the sandbox a port of its own, or, where the tenants trust each \
             other, say rules.shared_ud = true",
            observe::name(request)
        );
        Err(Refusal::warn(reason, Errno::EOPNOTSUPP, line))
    }

    /// `enum ib_uverbs_gid_type` of a source GID, if that can be told.
    fn gid_type(&self, value: &Value) -> Option<u32> {
        let index = GidIndex(u32::try_from(value.number).ok()?);
        match self.gids?.at(self.rdev, value.port?, index).ok()? {
            Seen::Entry(entry) => Some(entry.gid_type),
            // No port of RoCE: GIDs are InfiniBand's, IB_UVERBS_GID_TYPE_IB.
            Seen::Anything => Some(0),
            Seen::Nothing => None,
        }
    }

    /// The P_Keys that an index names on the ports that may be used.
    fn pkeys(&self, value: &Value) -> Vec<u16> {
        let read = || {
            let index = u32::try_from(value.number).ok()?;
            self.gids?.pkeys(self.rdev, index).ok()
        };
        let used = |port: &u32| self.ports.is_none_or(|ports| ports.contains(port));
        let pkeys = read().unwrap_or_default().into_iter();
        pkeys.filter(|(port, _)| used(port)).map(|(_, pkey)| pkey).collect()
    }
}

fn of_place(reason: &'static str, request: &Request, value: &Value) -> Refusal {
    let line = format!("{}: {} = {}: {reason}", observe::name(request), value.name, value.number);
    Refusal::warn(reason, Errno::EPERM, line)
}

/// The refusal of a request that names another port than these.
fn refused_port(request: &Request, ports: &[u32]) -> Option<Refusal> {
    let passes = |port: u64| ports.iter().any(|one| u64::from(*one) == port);
    let refused = |value: &Value| {
        let named = value.meaning == Meaning::Port && !passes(value.number);
        named || value.port.is_some_and(|port| !passes(port.into()))
    };
    let value = request.values().find(refused)?;
    Some(of_place("port not granted", request, &value))
}

/// The type of the queue pair that a request makes, if its work requests name their destinations; and why it
/// is refused where others speak by the port.
fn datagram(request: &Request) -> Option<(&'static str, &'static str)> {
    match policy::made_type(request)? {
        UD => Some(("UD", "UD on a shared port")),
        qp_types::DRIVER => Some(("mlx5:DC", "DC on a shared port")),
        _ => None,
    }
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Vetted {
    /// The kernel may have it; the guest is told something else than the kernel's word, if there
    /// is something.
    Execute(Request, Option<GidPatch>),
    /// This is the answer.
    Answered(Request, Outcome),
    /// It is not executed; `None` for what could not be decoded.
    Refused(Option<Request>, Refusal),
}

/// Whether a library asks for this in passing, and goes without: at every open libmlx5 asks for a DEVX uid,
/// and then, by DEVX's general commands, for capabilities of the device. The rest of DEVX nobody asks for who
/// does not want to use DEVX.
fn is_tried_by_libraries(asked: &AskedFor) -> bool {
    match asked {
        AskedFor::Private(_) => true,
        AskedFor::Method(method) => {
            method.object == ids::MLX5_IB_OBJECT_DEVX && method.id == ids::MLX5_IB_METHOD_DEVX_OTHER
        }
        _ => false,
    }
}

/// Judges a request of which the first bytes have been copied, and copies the rest: each byte once.
pub fn vet(memory: &impl GuestMemory, form: Form, copied: Copied, rules: &Rules<'_>) -> Vetted {
    let decoded = match form {
        Form::Ioctl(_) => decode::ioctl(memory, copied, rules.driver),
        Form::Write(count) => decode::write(&copied, count, rules.driver),
    };
    let mut request = match decoded {
        Ok(request) => request,
        Err(malformed) => {
            let line = format!("malformed request: {malformed}");
            let refusal = Refusal::note(malformed.kind(), malformed.errno(), line);
            return Vetted::Refused(None, refusal);
        }
    };
    rules.policy.clear(&mut request);
    if let Some(narrowed) = rules.narrowed {
        narrowed.clear(&mut request);
    }
    let narrowed = || rules.narrowed.map_or(Ok(()), |policy| policy.check(&request));
    if let Err(refused) = rules.policy.check(&request).and_then(|()| narrowed()) {
        let refusal = if is_tried_by_libraries(&refused.asked) {
            Refusal::note(refused.reason, refused.errno, &refused)
        } else {
            Refusal::warn(refused.reason, refused.errno, &refused)
        };
        return Vetted::Refused(Some(request), refusal);
    }
    if rules.withdrawn && !pace::lives_on(&request) {
        let line = format!(
            "{}: the operator's policy has this device no more (verbgate policy reload); what lives goes \
             on, and nothing new is made: start the program again, or grant the device",
            observe::name(&request)
        );
        let refusal = Refusal::warn("device taken away", Errno::EPERM, line);
        return Vetted::Refused(Some(request), refusal);
    }
    if let Err(refusal) = rules.check_place(&request) {
        return Vetted::Refused(Some(request), refusal);
    }
    if let Err(refusal) = rules.check_datagrams(&request) {
        return Vetted::Refused(Some(request), refusal);
    }
    match rules.gids.map(|gids| gids.judge(&request, rules.rdev, rules.asked)) {
        None | Some(Judged::Passed) => Vetted::Execute(request, None),
        Some(Judged::Patched(patch)) => Vetted::Execute(request, Some(patch)),
        Some(Judged::Answered(outcome)) => Vetted::Answered(request, outcome),
        Some(Judged::Refused(reason, errno)) => {
            let line = format!("{}: {reason}", observe::name(&request));
            Vetted::Refused(Some(request), Refusal::note(reason, errno, line))
        }
    }
}

#[cfg(test)]
mod tests;
