mod account;
mod asking;
mod demand;
mod leftover;
#[cfg(all(test, tower_dist_ratelimit_loom))]
mod loom;
mod owner;
mod purse;
mod share;
mod slot;
mod sync;
mod table;

use std::{
    slice,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{runtime, sync::oneshot, task::JoinSet, time::Instant};

use self::{
    account::{Ask, Plan},
    asking::Asking,
    slot::{Left, Slot},
    table::{Set, Table},
};
use crate::{
    Algorithm, BuildError, Decision, Policy, Source,
    algorithm::saturating_nanos,
    around::Around,
    backend::{
        Answer, Backend, BackendError, Bounded, BoxFuture, Capabilities, Charge, JointDecision,
        PolicyId,
    },
    terms::Terms,
};

/// Decides from prepaid tokens where it can, and forwards all other requests to the backend.
///
/// A lease ends one lease time after it was requested, and the backend debits it after the request. So
/// the tokens admitted in any interval D were debited in D or in the lease time before it. A fleet of
/// any size admits at most the tokens that the backend admits in an interval of D + the lease time.
///
/// Unused tokens expire with their lease. [Returning](Leasing::give_back) them earlier holds back the
/// tokens that the bucket gains in a lease time. The reason: a lease makes room in the bucket, which
/// then gains tokens that it would otherwise lose for being full. If all leased tokens were returned,
/// those tokens would count twice. Fleets that lease, wait, return and lease again would then admit
/// the tokens of D + two lease times.
///
/// Proof of the bound: a lease of n tokens may return at most n - rate · a at age a. Call the bucket's
/// tokens plus all returnable tokens the fullness. Leasing and returning do not change it. While a
/// lease has returnable tokens, they shrink at least as fast as the bucket gains. Otherwise the
/// fullness is the bucket's. So the fullness never exceeds the burst. The tokens admitted in D last
/// left the bucket in D or in the lease time before it. They come from the fullness at the start of
/// that time and the bucket's gain since: at most burst + rate · (D + the lease time). Windows gain in
/// steps, which the proof does not cover, so their unused tokens expire.
pub(crate) struct Leasing {
    inner: Arc<dyn Backend>,
    terms: SmallVec<[Terms; 4]>,
    shared: Arc<Shared>,
    /// Timeout of background calls to the backend.
    deadline: Duration,
    /// Refills in flight: at most one per slot. They outlive the requests that started them, and are
    /// aborted when this is dropped.
    refills: Mutex<JoinSet<()>>,
}

/// The backend's answer to a refill.
type Granted = BoxFuture<'static, Result<JointDecision, BackendError>>;

/// State shared with refills, which can outlive their requests.
struct Shared {
    table: Table,
    /// Lease time in nanoseconds.
    lease: u64,
    created: Instant,
}

impl Shared {
    /// Returns the nanoseconds since creation.
    fn now(&self) -> u64 {
        saturating_nanos(Instant::now().saturating_duration_since(self.created))
    }
}

impl Leasing {
    /// Wraps a backend that knows these policies by these ids.
    pub(crate) fn new(
        inner: Arc<dyn Backend>,
        policies: &[Policy],
        ids: &[PolicyId],
        lease: Duration,
        deadline: Duration,
    ) -> Self {
        Self {
            inner,
            terms: Terms::all(policies, ids),
            shared: Arc::new(Shared {
                table: Table::new(),
                lease: saturating_nanos(lease),
                created: Instant::now(),
            }),
            deadline,
            refills: Mutex::default(),
        }
    }

    /// Returns the request as the lease table sees it. Returns `None` unless exactly one policy applies,
    /// the policy can be leased, and the cost is from 1 to the burst.
    #[inline]
    fn ask(&self, charges: &[Charge<'_>]) -> Option<Ask> {
        let [charge] = charges else { return None };
        let terms = Terms::of(&self.terms, charge)?;
        let burst = terms.max_tokens();
        // A leaky queue schedules each request, and never grants more than one.
        let is_queue = matches!(terms.algorithm, Algorithm::LeakyQueue { .. });
        if charge.cost == 0 || charge.cost > burst || is_queue {
            return None;
        }
        Some(Ask {
            tag: self.shared.table.tag(charge),
            cost: charge.cost,
            burst,
            now: self.shared.now(),
            ahead: false,
        })
    }

    /// Pays for the request without the backend, if enough leased tokens are here.
    #[inline]
    pub(crate) fn spend(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> bool {
        let Some(ask) = self.ask(charges) else {
            return false;
        };
        let slot = self.shared.table.set(ask.tag).slot(ask.tag);
        slot.is_some_and(|slot| self.pay(slot, ask, out).is_some())
    }

    /// Starts a refill that no request waits for.
    #[cold]
    fn ask_ahead(&self, set: &Set, ask: Ask, charge: &Charge<'_>) {
        if runtime::Handle::try_current().is_err() {
            return;
        }
        let ask = Ask { ahead: true, ..ask };
        let Plan::Ask { id, extra } = set.plan(ask, charge, self.shared.lease) else {
            return;
        };
        let asking = Asking::new(&self.shared, ask, id, extra);
        let charge = Charge {
            cost: 1,
            up_to: asking.want(),
            ..*charge
        };
        let mut decision = Decision::default();
        match self
            .inner
            .acquire(slice::from_ref(&charge), slice::from_mut(&mut decision))
        {
            Answer::Done(_) => asking.answered(&mut decision),
            // The next request without tokens calls the backend and sees the error.
            Answer::Failed(_) => {}
            Answer::Later(answer) => drop(self.refill(asking, answer)),
        }
    }

    /// Awaits a grant in its own task, so that the grant is booked even if the request is cancelled.
    /// Outside a runtime, the request itself awaits it.
    fn refill(&self, asking: Asking, answer: Granted) -> Granted {
        let answer = Bounded::new(self.deadline, answer);
        let booked = async move {
            let mut verdict = answer.await?;
            if let Some(decision) = verdict.decisions.first_mut() {
                asking.answered(decision);
            }
            Ok(verdict)
        };
        let Ok(runtime) = runtime::Handle::try_current() else {
            return Box::pin(booked);
        };
        let (sender, granted) = oneshot::channel();
        let refill = async move {
            // The receiver is gone if the request was cancelled.
            let _ = sender.send(booked.await);
        };
        let mut refills = self.refills.lock().unwrap_or_else(PoisonError::into_inner);
        while refills.try_join_next().is_some() {}
        refills.spawn_on(refill, &runtime);
        Box::pin(async move {
            let ended = |_| Err(BackendError::new("lease refill lost: runtime shut down"));
            granted.await.unwrap_or_else(ended)
        })
    }

    /// Handles a request that finds no leased tokens.
    fn ask_store(&self, set: &Set, ask: Ask, charge: &Charge<'_>, out: &mut [Decision]) -> Answer {
        let (id, extra) = match set.plan(ask, charge, self.shared.lease) {
            Plan::Exact => return self.inner.acquire(slice::from_ref(charge), out),
            Plan::Reject(until) => {
                let Some(slot) = set.slot(ask.tag) else {
                    // Another key took the slot in the meantime.
                    return self.inner.acquire(slice::from_ref(charge), out);
                };
                if let Some(out) = out.first_mut() {
                    reject(slot, ask, until, out);
                }
                return Answer::Done(false);
            }
            Plan::Ask { id, extra } => (id, extra),
        };
        let asking = Asking::new(&self.shared, ask, id, extra);
        let charge = charge.up_to(asking.want());
        match self.inner.acquire(slice::from_ref(&charge), out) {
            Answer::Done(allowed) => {
                if let Some(out) = out.first_mut() {
                    asking.answered(out);
                }
                Answer::Done(allowed)
            }
            Answer::Failed(error) => Answer::Failed(error),
            Answer::Later(answer) => Answer::Later(self.refill(asking, answer)),
        }
    }

    /// Records tokens that the backend charges outside of the leases.
    fn take<'a>(&self, taken: impl Iterator<Item = (&'a Charge<'a>, u64)>) {
        for (charge, tokens) in taken {
            let tag = self.shared.table.tag(charge);
            self.shared.table.set(tag).take(tag, tokens);
        }
    }

    /// Clears the shortages of these keys before and after an operation that returns tokens.
    fn relieve(&self, charges: &[Charge<'_>]) -> Around<impl Fn() + use<>> {
        let shared = Arc::clone(&self.shared);
        let tags = charges.iter().map(|charge| shared.table.tag(charge));
        let tags: SmallVec<[u64; 2]> = tags.collect();
        Around::new(move || {
            for &tag in &tags {
                shared.table.set(tag).relieve(tag);
            }
        })
    }

    /// Returns whether to start a refill.
    fn is_low(slot: &Slot, left: Left, now: u64) -> bool {
        left.lasting <= slot.low.load(Relaxed) && now >= slot.not_before.load(Relaxed)
    }

    /// Pays for a request from a lease, and writes the decision.
    #[inline]
    fn pay(&self, slot: &Slot, ask: Ask, out: &mut [Decision]) -> Option<Left> {
        let [out] = out else { return None };
        // A refill that starts now should have arrived by then.
        let soon = ask.now.saturating_add(self.shared.lease / 4);
        let left = slot.spend(ask.tag, ask.cost, ask.now, soon)?;
        let remaining = slot.remaining.load(Relaxed).saturating_add(left.tokens);
        *out = Decision {
            source: Source::Lease,
            ..Decision::allow(
                ask.cost,
                slot.limit.load(Relaxed),
                remaining.min(ask.burst),
                full_after(slot, ask.now),
            )
        };
        Some(left)
    }
}

/// Writes a rejection that lasts until `until`, or until the backend's own wait ends if that is later.
fn reject(slot: &Slot, ask: Ask, until: u64, out: &mut Decision) {
    // The backend is called before `due`, because other instances may have returned tokens.
    let until = until.max(slot.due.load(Relaxed));
    let wait = Duration::from_nanos(until.saturating_sub(ask.now));
    // A rejected request can find some tokens, but fewer than its cost.
    let remaining = slot.held(ask.now).min(ask.cost - 1);
    *out = Decision {
        source: Source::Lease,
        ..Decision::reject(
            slot.limit.load(Relaxed),
            remaining,
            Some(wait),
            full_after(slot, ask.now).max(wait),
        )
    };
}

fn full_after(slot: &Slot, now: u64) -> Duration {
    Duration::from_nanos(slot.full_at.load(Relaxed).saturating_sub(now))
}

impl Backend for Leasing {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.inner.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        let (Some(ask), [charge]) = (self.ask(charges), charges) else {
            self.take(charges.iter().map(|charge| (charge, charge.cost)));
            return self.inner.acquire(charges, out);
        };
        let set = self.shared.table.set(ask.tag);
        if let Some(slot) = set.slot(ask.tag) {
            slot.seen.fetch_add(1, Relaxed);
            if let Some(left) = self.pay(slot, ask, out) {
                if Self::is_low(slot, left, ask.now) {
                    self.ask_ahead(set, ask, charge);
                }
                return Answer::Done(true);
            }
            let until = slot.reject_until.load(Relaxed);
            if ask.now < until
                && ask.cost >= slot.reject_from.load(Relaxed)
                && slot.is(ask.tag)
                && let [out] = out
            {
                reject(slot, ask, until, out);
                return Answer::Done(false);
            }
        }
        self.ask_store(set, ask, charge, out)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        if delta >= 0 {
            self.take(charges.iter().map(|charge| (charge, delta.unsigned_abs())));
            return self.inner.settle(charges, delta);
        }
        let relieve = self.relieve(charges);
        relieve.answer(self.inner.settle(charges, delta))
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        let relieve = self.relieve(&[Charge::new(policy, key, 0)]);
        relieve.future(self.inner.reset(policy, key))
    }
}

#[cfg(all(test, not(tower_dist_ratelimit_loom)))]
mod tests;
