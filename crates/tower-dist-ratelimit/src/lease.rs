mod account;
mod asking;
mod demand;
mod leftover;
#[cfg(all(test, tower_dist_ratelimit_loom))]
mod loom;
mod owner;
mod purse;
mod relief;
mod share;
mod slot;
mod sync;
mod table;
mod terms;

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
    relief::Relief,
    slot::{Left, Slot},
    table::{Set, Table},
    terms::Terms,
};
use crate::{
    BuildError, Decision, Policy, Source,
    algorithm::saturating_nanos,
    backend::{
        Answer, Backend, BackendError, Bounded, BoxFuture, Capabilities, Charge, JointDecision,
        PolicyId,
    },
};

/// Spends tokens that were paid for in advance, and asks a store for all others.
///
/// What is admitted in any interval D has been debited from the store in D or in the lease time before it, since a lease ends when
/// that time has passed from when it was asked for, which is before the store debits it. So it is at most what the store
/// itself admits in an interval of D + the lease time, whatever the number of instances.
///
/// What is left when a lease ends dies. What is left before can be [given back](Leasing::give_back), but for as much as the bucket gains
/// in a lease time: if all of it were, a token that the bucket had gained meanwhile, and lost for being full, would be there
/// twice, and fleets that lease, wait, give back and lease again would get what D + two lease times allow.
///
/// With that the bound holds. Call what a lease of n tokens may give back at an age a at most n - rate · a; and the fullness, the sum of what
/// is in the bucket and of what all leases may give back. Leasing and giving back do not change it. While a lease may give back
/// anything, that shrinks at least as fast as the bucket gains; and else the fullness is the bucket's. So it is never above the burst. What is
/// admitted in D was taken from the bucket for the last time in D or the lease time before it, out of the fullness at the beginning of
/// that time and of what the bucket has gained in it: at most burst + rate · (D + the lease time). Windows gain in steps, for
/// which none of this is true, so what is left of theirs dies.
pub(crate) struct Leasing {
    inner: Arc<dyn Backend>,
    /// What can be leased.
    terms: SmallVec<[Terms; 4]>,
    shared: Arc<Shared>,
    /// How long the store is waited for in the background.
    deadline: Duration,
    /// Refills in flight: at most one for each slot. They survive the requests that asked for them, and end with this.
    refills: Mutex<JoinSet<()>>,
}

/// The backend's answer to a refill.
type Granted = BoxFuture<'static, Result<JointDecision, BackendError>>;

/// What outlives a request that has asked.
struct Shared {
    table: Table,
    /// In nanoseconds.
    lease: u64,
    created: Instant,
}

impl Shared {
    /// Nanoseconds since this was made.
    fn now(&self) -> u64 {
        saturating_nanos(Instant::now().saturating_duration_since(self.created))
    }
}

impl Leasing {
    /// Over a store that knows these policies by these names.
    pub(crate) fn new(
        inner: Arc<dyn Backend>,
        policies: &[Policy],
        ids: &[PolicyId],
        lease: Duration,
        deadline: Duration,
    ) -> Self {
        Self {
            inner,
            terms: Terms::of(policies, ids),
            shared: Arc::new(Shared {
                table: Table::new(),
                lease: saturating_nanos(lease),
                created: Instant::now(),
            }),
            deadline,
            refills: Mutex::default(),
        }
    }

    /// The request, if it can be paid for from a lease: if one policy applies to it, and it can pass at all.
    #[inline]
    fn ask(&self, charges: &[Charge<'_>]) -> Option<Ask> {
        let [charge] = charges else { return None };
        let terms = self.terms.iter().find(|terms| terms.id == charge.policy)?;
        let burst = terms.most(charge.quota);
        if charge.cost == 0 || charge.cost > burst {
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

    /// Decides without the store, if there are tokens here.
    #[inline]
    pub(crate) fn spend(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> bool {
        let Some(ask) = self.ask(charges) else {
            return false;
        };
        let slot = self.shared.table.set(ask.tag).slot(ask.tag);
        slot.is_some_and(|slot| self.pay(slot, ask, out).is_some())
    }

    /// Asks for tokens that no request waits for.
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
            // Who finds no tokens will ask, and be told.
            Answer::Failed(_) => {}
            Answer::Later(answer) => drop(self.refill(asking, answer)),
        }
    }

    /// Waits for a grant in a task of its own, which books the grant even if the request that asked for it is cancelled.
    /// Outside of a runtime the request itself waits.
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
            // A cancelled request has no use for the verdict.
            let _ = sender.send(booked.await);
        };
        let mut refills = self.refills.lock().unwrap_or_else(PoisonError::into_inner);
        while refills.try_join_next().is_some() {}
        refills.spawn_on(refill, &runtime);
        Box::pin(async move {
            let ended = |_| Err(BackendError::new("the runtime of the refill has ended"));
            granted.await.unwrap_or_else(ended)
        })
    }

    /// Asks the store about a request, for which there are no tokens here.
    fn ask_store(&self, set: &Set, ask: Ask, charge: &Charge<'_>, out: &mut [Decision]) -> Answer {
        let (id, extra) = match set.plan(ask, charge, self.shared.lease) {
            Plan::Exact => return self.inner.acquire(slice::from_ref(charge), out),
            Plan::Reject(until) => {
                let Some(slot) = set.slot(ask.tag) else {
                    // Another key has taken its place meanwhile, and what is known of it is gone.
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

    /// So many tokens are taken from the store, beside what is leased.
    fn take<'a>(&self, taken: impl Iterator<Item = (&'a Charge<'a>, u64)>) {
        for (charge, tokens) in taken {
            let tag = self.shared.table.tag(charge);
            self.shared.table.set(tag).take(tag, tokens);
        }
    }

    /// Whether it is time to ask for more.
    fn is_low(slot: &Slot, left: Left, now: u64) -> bool {
        left.lasting <= slot.low.load(Relaxed) && now >= slot.not_before.load(Relaxed)
    }

    /// Pays for a request, and writes the decision.
    #[inline]
    fn pay(&self, slot: &Slot, ask: Ask, out: &mut [Decision]) -> Option<Left> {
        let [out] = out else { return None };
        // An answer to who asks now should be here by then.
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

/// Writes that a request has to wait until then.
fn reject(slot: &Slot, ask: Ask, until: u64, out: &mut Decision) {
    // The store would reject it until then, and may be asked before: somebody may have given back.
    let until = until.max(slot.due.load(Relaxed));
    let wait = Duration::from_nanos(until.saturating_sub(ask.now));
    // There may be a few here, but not enough.
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
        let relief = Relief::new(&self.shared, charges);
        match self.inner.settle(charges, delta) {
            Answer::Later(answer) => Answer::Later(Box::pin(async move {
                let _relief = relief;
                answer.await
            })),
            answer => answer,
        }
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        let relief = Relief::new(&self.shared, &[Charge::new(policy, key, 0)]);
        let done = self.inner.reset(policy, key);
        Box::pin(async move {
            let _relief = relief;
            done.await
        })
    }
}

#[cfg(all(test, not(tower_dist_ratelimit_loom)))]
mod tests;
