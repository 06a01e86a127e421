//! Claim and charge: the connections that a vetted request is about to make are the sandbox's own, and
//! what the request takes is within the tenant's quotas and rate, or the request is refused.

use verbgate_abi::Errno;
use verbgate_abi::Request;
use verbgate_abi::wire::DriverId;

use crate::account::Receipt;
use crate::books::UcontextId;
use crate::connections::Sources;
use crate::connections::Ticket;
use crate::device::Kind;
use crate::fetch::Copied;
use crate::fetch::Form;
use crate::flight::Prepared;
use crate::ledger;
use crate::observe;
use crate::pace;
use crate::pace::Pace;
use crate::pace::VerbClass;
use crate::policy::Policy;
use crate::quota::Resource;
use crate::quota::Takes;
use crate::session::GuestState;
use crate::supervisor::Supervisor;
use crate::task::About;
use crate::task::Asked;
use crate::task::Call;
use crate::task::Task;
use crate::vet::Refusal;
use crate::vet::Rules;
use crate::way;

impl Supervisor {
    /// Claims the connections that a request is about to make, or tells that the request is refused.
    pub(crate) fn claim(&self, about: &About, prepared: &Prepared) -> Result<Ticket, Errno> {
        let request = &prepared.request;
        let domain = self.domain(about.ucontext, prepared);
        domain.and_then(|()| self.connect(about.ucontext, request)).map_err(|refusal| {
            self.refused(about, Some(request), &refusal);
            refusal.errno
        })
    }

    /// Claims the file by which an XRC domain is opened.
    fn domain(&self, id: UcontextId, prepared: &Prepared) -> Result<(), Refusal> {
        let Some(register) = &self.register else { return Ok(()) };
        if prepared.request.operation() != "OPEN_XRCD" {
            return Ok(());
        }
        for lent in &prepared.plan.lent {
            let file = lent.file.kept().map_err(|e| {
                let line = format!("OPEN_XRCD: cannot tell which file names the domain: {e}");
                Refusal::note("XRC domain not known", Errno::EBADF, line)
            })?;
            if let Some(ucontext) = self.books.lock().get_mut(id) {
                ucontext.connections.claim_domain(file, register)?;
            }
        }
        Ok(())
    }

    fn connect(&self, id: UcontextId, request: &Request) -> Result<Ticket, Refusal> {
        let Some(register) = &self.register else { return Ok(Ticket::default()) };
        let device = self.books.lock().get(id).map(|ucontext| ucontext.device);
        let rdev = device.and_then(|device| self.devices.get(device)).map(|device| device.rdev);
        let sources = Sources { gids: self.gids.as_deref(), rdev: rdev.unwrap_or((0, 0)) };
        // Looked up before the books are locked: the look-up asks the kernel.
        let paths = sources.paths(request).map_err(|e| {
            let line = format!("MODIFY_QP: cannot tell whose the source GID is: {e}");
            Refusal::note("cannot tell whose the GID is", Errno::EIO, line)
        })?;
        let mut books = self.books.lock();
        match books.get_mut(id) {
            Some(ucontext) => ucontext.connections.begin(request, &paths, register),
            None => Ok(Ticket::default()),
        }
    }

    /// The policies that a request must pass.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &Policy> {
        std::iter::once(&*self.policy).chain(self.narrowed())
    }

    /// The most that the tenant may hold of a quantity.
    pub(crate) fn bound(&self, resource: Resource) -> Option<u64> {
        self.policies().filter_map(|policy| policy.quota(resource)).min()
    }

    /// Charges what a request is about to take, or tells that the request is refused.
    pub(crate) fn charge(&self, about: &About, request: &Request) -> Result<Receipt, Errno> {
        let takes = Takes::of(request);
        let bounds = |resource| self.bound(resource);
        // Closed first, as far as that has been told: what is over no longer counts.
        if !takes.made.is_empty() {
            self.spared().inspect_err(|errno| {
                let line = format!("{}: the supervisor has no memory left", observe::name(request));
                self.refused(about, Some(request), &Refusal::note("memory is short", *errno, line));
            })?;
            if self.policies().any(Policy::has_quota) {
                self.release();
            }
        }
        let charge = takes.charge();
        self.ledger.charge(&charge, &bounds).map_err(|over| {
            let refusal = over.refusal(observe::name(request));
            self.refused(about, Some(request), &refusal);
            refusal.errno
        })?;
        match self.books.lock().get_mut(about.ucontext) {
            Some(ucontext) => Ok(ucontext.account.begin(takes)),
            None => {
                self.ledger.release(&charge);
                Ok(Receipt::default())
            }
        }
    }

    /// A request has been made, or never will be: its claims and charges last, or end.
    pub(crate) fn ended(&self, about: &About, succeeded: bool) {
        if let Some(ucontext) = self.books.lock().get_mut(about.ucontext) {
            ucontext.connections.end(about.ticket, succeeded);
            ucontext.account.end(about.receipt, succeeded);
        }
    }

    /// A call that may be served now; one beyond the tenant's rate waits, or is refused. The first of a
    /// guest goes through, since nobody looks after a guest without stubs.
    pub(crate) fn paced(&self, state: &mut GuestState, mut call: Call) -> Option<Call> {
        let is_request = matches!(call.asked, Asked::Request { .. });
        if call.paced || !is_request || state.workers.is_empty() {
            return Some(call);
        }
        let Some(pace) = self.pace() else { return Some(call) };
        if self.ledger.may_go(None, &pace, ledger::clock()) {
            call.paced = true;
            return Some(call);
        }
        self.beyond(state, call, &pace, None);
        None
    }

    /// The same by the rates of classes of verbs: of the class that the bytes show which the supervisor
    /// has copied, and will execute. Before a stub is bound to the call's file.
    pub(crate) fn paced_by_class(
        &self,
        state: &mut GuestState,
        mut call: Call,
        kind: Option<VerbClass>,
    ) -> Result<Option<Call>, Errno> {
        if !self.policies().any(Policy::has_class_rate) {
            return Ok(Some(call));
        }
        let Asked::Request { form, addr, copied } = &mut call.asked else { return Ok(Some(call)) };
        if let (None, Form::Write(count), None) = (&copied, *form, kind) {
            *copied = Some(way::copy_write(&self.caller(&call.trap), *addr, count)?);
        }
        let bytes = copied.as_ref().map_or(&[][..], Copied::bytes);
        let classes =
            kind.as_ref().map_or_else(|| VerbClass::of(*form, bytes), std::slice::from_ref);
        let now = ledger::clock();
        let held = self.ledger.tenant_holds(now);
        for class in classes {
            let part = pace::part(*class, &held, &|resource| self.bound(resource));
            let rates = self.policies().filter_map(|policy| policy.class_rate(*class, part));
            let Some(pace) = rates.reduce(Pace::and) else { continue };
            if !self.ledger.may_go(Some(*class), &pace, now) {
                self.beyond(state, call, &pace, Some((*class, part)));
                return Ok(None);
            }
        }
        Ok(Some(call))
    }

    /// A call beyond a rate waits, or is refused.
    fn beyond(
        &self,
        state: &mut GuestState,
        call: Call,
        pace: &Pace,
        class: Option<(VerbClass, u64)>,
    ) {
        let (tid, Pace { per_s, waits, .. }) = (call.trap.tid, *pace);
        if !call.late {
            let rule = match class {
                None => format!("rate.per_s = {per_s}"),
                Some((class, part)) => {
                    format!("rates.{} = {per_s} a second at {part} % of the quota", class.name())
                }
            };
            self.warn("rate reached", || {
                format!(
                    "thread {tid}: the tenant makes more than {per_s} requests a second (rule: {rule}); \
                     raise the rate, or let the program keep its objects"
                )
            });
            self.beyond_rate(tid, &rule, waits);
        }
        if waits {
            // A mount's number is not kept while the mount may go.
            state.waiting.push_back(Task::Call(Call { mount: None, late: true, ..call }));
        } else {
            self.refuse(call.trap, Errno::EAGAIN);
        }
    }

    /// What requests on a ucontext are held against.
    pub(crate) fn rules(&self, id: UcontextId) -> Rules<'_> {
        let books = self.books.lock();
        let ucontext = books.get(id);
        let place = ucontext.map(|ucontext| ucontext.device);
        let device = place.and_then(|place| self.devices.get(place));
        let driver = match device.map(|device| device.kind) {
            Some(Kind::Verbs { driver, .. }) => driver,
            _ => DriverId::UNKNOWN,
        };
        Rules {
            driver,
            policy: &self.policy,
            narrowed: self.narrowed(),
            withdrawn: place.is_some_and(|place| self.narrowed.is_withdrawn(place)),
            ports: place.and_then(|place| self.narrowed.ports(&self.devices, place)),
            gids: self.gids.as_deref(),
            rdev: device.map_or((0, 0), |device| device.rdev),
            asked: ucontext.is_none_or(|ucontext| ucontext.asked),
        }
    }
}
