mod demand;
mod entry;
#[cfg(all(test, tower_dist_ratelimit_loom))]
mod loom;
mod prepaid;
mod table;

use std::{
    slice,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::{runtime, sync::oneshot, task::JoinSet, time::Instant};

use self::{
    demand::Claim,
    entry::{Plan, Refill},
    table::LeaseTable,
};
use crate::{
    Algorithm, BuildError, Decision, Policy,
    algorithm::saturating_nanos,
    backend::{Answer, Backend, BackendError, BoxFuture, Charge, JointDecision, PolicyId, Timeout},
    background::Background,
    bracket::Bracket,
    terms::Terms,
};

/// Decides requests from leases: tokens that the backend has charged in advance. Other requests go to the backend, or
/// are rejected during a shortage.
///
/// A lease ends one lease time after it was requested, and the backend charges it after the request. So the leased
/// tokens spent in any interval D were charged in D or in the lease time before it. A fleet of any size admits at most
/// the tokens that the backend admits in an interval of D + the lease time.
///
/// Unused tokens expire with their lease. An earlier [return](Leasing::give_back) leaves out at least the tokens that
/// the bucket gains in a lease time. The reason: a lease makes room in the bucket, which then gains tokens that it
/// would otherwise lose for being full. If all leased tokens were returned, a fleet could use these gained tokens, too.
/// Fleets that lease, wait, return and lease again would then admit the tokens of D + two lease times.
///
/// Proof of the bound: all leased tokens have left the bucket in the last lease time. In that time, the bucket has
/// gained at most rate · (the lease time). So the bucket's tokens plus the leased tokens are at most burst + rate ·
/// (the lease time). Each return leaves out at least rate · (the lease time). So the fullness, the bucket's tokens plus
/// all returnable tokens, never exceeds the burst. Each token admitted in D left the bucket in D or in the lease time
/// before it. If the token was returned in between, its latest departure counts. These tokens come from the fullness at
/// the start of that time and the bucket's gain since: at most burst + rate · (D + the lease time). Windows and logs
/// gain in steps, which the proof does not cover, so their unused tokens expire.
pub(crate) struct Leasing {
    inner: Arc<dyn Backend>,
    terms: Box<[Terms]>,
    shared: Arc<SharedLeases>,
    /// Timeout of the backend's answers to refills and to returned leases.
    timeout: Duration,
    /// Refills in flight, usually at most one per key. They can outlive the requests that started them. Dropping the
    /// `Leasing` aborts them.
    refills: Background,
}

/// The part of [`Leasing`] that is not a [`Backend`]. Used as a trait object, so that a binary that never calls the
/// builder's `consistency` does not contain the code of leases.
pub(crate) trait Leases: Send + Sync {
    /// Decides the request from a lease, if the cost is above zero and one lease has enough tokens. Returns whether it
    /// did.
    fn spend(&self, charge: &Charge<'_>, out: &mut Decision) -> bool;

    /// Empties all leases, and returns their unused tokens to the backend. From the unused tokens of each key, first
    /// deducts the number that the bucket gains in a lease time plus the backend timeout. Tokens of windows and logs,
    /// and of keys that are too long to store, are not returned. Fails if the backend fails to take back the tokens of
    /// a key.
    fn give_back(&self) -> BoxFuture<'_, Result<(), BackendError>>;
}

/// State shared with refills, which can outlive their requests.
struct SharedLeases {
    table: LeaseTable,
    /// Lease time in nanoseconds.
    lease: u64,
    created: Instant,
}

impl SharedLeases {
    /// Returns the nanoseconds since creation.
    fn now(&self) -> u64 {
        saturating_nanos(Instant::now().saturating_duration_since(self.created))
    }
}

/// A refill in flight. If it is dropped without a decision, its key usually starts no refill for an eighth of the lease
/// time.
struct RefillInFlight {
    shared: Arc<SharedLeases>,
    refill: Refill,
}

impl RefillInFlight {
    /// Stores the granted tokens as a lease, minus the cost of the waiting request if there is one. If the key was
    /// evicted, usually discards these tokens instead. In `decision`, counts them as remaining instead of granted. In a
    /// rejection, extends the wait at least to the end of the pause in which this process rejects requests.
    fn answered(&self, decision: &mut Decision) {
        let Self { shared, refill } = self;
        let (ways, now) = (shared.table.ways(refill.tag), shared.now());
        let until = ways.change(refill.tag, |entry, state| {
            state.answered(entry, *refill, decision, now, shared.lease)
        });
        if decision.allowed {
            let extra = decision.granted.saturating_sub(refill.cost);
            decision.granted -= extra;
            decision.remaining = decision.remaining.saturating_add(extra).min(refill.burst);
        } else if let Some(wait) = &mut decision.retry_after {
            let pause = until.unwrap_or(0).saturating_sub(now);
            *wait = Duration::from_nanos(pause).max(*wait);
        }
    }
}

/// Ends a refill that got no decision. Has no effect after a decision.
impl Drop for RefillInFlight {
    fn drop(&mut self) {
        let Self { shared, refill } = self;
        let again = shared.now().saturating_add(shared.lease / 8);
        let ways = shared.table.ways(refill.tag);
        ways.change(refill.tag, |entry, state| {
            state.ended(entry, *refill, again)
        });
    }
}

impl Leasing {
    /// Wraps a backend in which `policies` are registered as `ids`.
    pub(crate) fn new(
        inner: Arc<dyn Backend>,
        policies: &[Policy],
        ids: &[PolicyId],
        lease: Duration,
        timeout: Duration,
    ) -> Self {
        Self {
            inner,
            terms: Terms::all(policies, ids),
            shared: Arc::new(SharedLeases {
                table: LeaseTable::new(),
                lease: saturating_nanos(lease),
                created: Instant::now(),
            }),
            timeout,
            refills: Background::default(),
        }
    }

    /// Returns the charge's claim on leased tokens, or `None` if leases cannot serve the charge: its policy is unknown
    /// or a leaky queue, its cost is zero, or its cost exceeds the maximum tokens of the quota.
    #[inline]
    fn claim(&self, charge: &Charge<'_>) -> Option<Claim> {
        let terms = Terms::of(&self.terms, charge)?;
        let burst = terms.max_tokens();
        // A leaky queue schedules each request, and never grants more than the request's cost.
        let is_queue = matches!(terms.algorithm, Algorithm::LeakyQueue { .. });
        if charge.cost == 0 || charge.cost > burst || is_queue {
            return None;
        }
        Some(Claim {
            tag: self.shared.table.tag(charge),
            cost: charge.cost,
            burst,
            now: self.shared.now(),
            ahead: false,
        })
    }

    /// Handles a request that finds too few leased tokens: sends it to the backend, with or without a refill, or rejects
    /// it. If `claim.ahead`, a lease has already paid for the request, and this function only starts a refill in the
    /// background where one is useful. Outside of a runtime there are no refills.
    fn query_backend(&self, claim: Claim, charge: &Charge<'_>, out: &mut Decision) -> Answer {
        let SharedLeases { table, lease, .. } = &*self.shared;
        let plan = match runtime::Handle::try_current() {
            Ok(_) => table.ways(claim.tag).plan(claim, charge, *lease),
            Err(_) => Plan::Exact,
        };
        let refill = match plan {
            Plan::Refill(refill) => refill,
            Plan::Reject(decision) => {
                *out = decision;
                return Answer::Done(false);
            }
            Plan::Exact if claim.ahead => return Answer::Done(true),
            Plan::Exact => {
                let charges = slice::from_ref(charge);
                return self.inner.acquire(charges, slice::from_mut(out));
            }
        };
        let in_flight = RefillInFlight {
            shared: Arc::clone(&self.shared),
            refill,
        };
        let charge = Charge {
            cost: refill.cost.max(1),
            up_to: refill.up_to,
            ..*charge
        };
        let answer = self.inner.acquire(&[charge], slice::from_mut(out));
        match answer {
            Answer::Done(_) => in_flight.answered(out),
            Answer::Later(answer) => return Answer::Later(self.refill(in_flight, answer)),
            // The error is returned below. If no request waits for the refill, the caller ignores the error.
            Answer::Failed(_) => {}
        }
        answer
    }

    /// Awaits the answer in its own task, so that the lease is stored even if the request is cancelled.
    fn refill(
        &self,
        in_flight: RefillInFlight,
        answer: BoxFuture<'static, Result<JointDecision, BackendError>>,
    ) -> BoxFuture<'static, Result<JointDecision, BackendError>> {
        let answer = Timeout::new(self.timeout, answer);
        let (sender, granted) = oneshot::channel();
        let refill = async move {
            let mut verdict = answer.await;
            if let Ok(JointDecision { decisions, .. }) = &mut verdict
                && let Some(decision) = decisions.first_mut()
            {
                in_flight.answered(decision);
            }
            // The receiver is gone if no request waits for the answer.
            let _ = sender.send(verdict);
        };
        self.refills.spawn(usize::MAX, Box::pin(refill));
        Box::pin(async move {
            let ended = |_| Err(BackendError::new("lease refill lost: runtime shut down"));
            granted.await.unwrap_or_else(ended)
        })
    }

    /// Records tokens that the backend charges, or may charge, outside of the leases.
    fn charged_outside(&self, charge: &Charge<'_>, tokens: u64) {
        let tag = self.shared.table.tag(charge);
        let ways = self.shared.table.ways(tag);
        ways.change(tag, |entry, state| state.charged_outside(entry, tokens));
    }

    /// Clears the shortages of these keys before and after an operation that returns tokens. A shortage pauses a key's
    /// refills.
    fn relieve(&self, charges: &[Charge<'_>]) -> Bracket<impl Fn(u64) + use<>> {
        let shared = Arc::clone(&self.shared);
        let tags = charges.iter().map(|charge| self.shared.table.tag(charge));
        Bracket::new(tags, move |tag| shared.table.ways(tag).relieve(tag))
    }
}

impl Leases for Leasing {
    fn spend(&self, charge: &Charge<'_>, out: &mut Decision) -> bool {
        let Some(claim) = self.claim(charge) else {
            return false;
        };
        let SharedLeases { table, lease, .. } = &*self.shared;
        let entry = table.ways(claim.tag).entry(claim.tag);
        entry.is_some_and(|entry| entry.pay(claim, *lease, out).is_some())
    }

    fn give_back(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        Box::pin(async move {
            let SharedLeases { table, lease, .. } = &*self.shared;
            let lasting = Duration::from_nanos(*lease).saturating_add(self.timeout);
            let (mut result, mut in_flight) = (Ok(()), JoinSet::new());
            let now = self.shared.now();
            let leases = table.sets.iter().flat_map(|ways| ways.drain(now));
            for (owner, tokens) in leases {
                let terms = Terms::of(&self.terms, &owner.charge(0));
                let gained = terms.and_then(|terms| terms.gained(lasting));
                let spare = gained.map_or(0, |gained| tokens.saturating_sub(gained));
                if spare == 0 {
                    continue;
                }
                let delta = i64::try_from(spare).map_or(i64::MIN, |spare| -spare);
                match self.inner.settle(&[owner.charge(spare)], delta) {
                    Answer::Done(_) => {}
                    Answer::Failed(error) => result = Err(error),
                    Answer::Later(answer) => {
                        in_flight.spawn(Timeout::new(self.timeout, answer));
                    }
                }
            }
            while let Some(answer) = in_flight.join_next().await {
                let ended = |_| Err(BackendError::new("lease return lost: its task ended early"));
                result = result.and(answer.unwrap_or_else(ended).map(|_| ()));
            }
            result
        })
    }
}

impl Backend for Leasing {
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.inner.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        let claim = match charges {
            [charge] => self.claim(charge),
            _ => None,
        };
        let (Some(claim), [charge], [decision]) = (claim, charges, &mut *out) else {
            for charge in charges {
                self.charged_outside(charge, charge.cost);
            }
            return self.inner.acquire(charges, out);
        };
        let SharedLeases { table, lease, .. } = &*self.shared;
        if let Some(entry) = table.ways(claim.tag).entry(claim.tag) {
            entry.seen.fetch_add(1, Relaxed);
            if let Some(is_low) = entry.pay(claim, *lease, decision) {
                if is_low {
                    let claim = Claim {
                        ahead: true,
                        ..claim
                    };
                    let _ = self.query_backend(claim, charge, &mut Decision::default());
                }
                return Answer::Done(true);
            }
        }
        self.query_backend(claim, charge, decision)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        if delta >= 0 {
            for charge in charges {
                self.charged_outside(charge, delta.unsigned_abs());
            }
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
