use std::{future::poll_fn, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    future::{Charged, OnDrop},
    wait_queues::{QueuePlace, Spacing, Supplies, Supply, WaitQueues},
};
use crate::{
    Algorithm, Decision, Event, RateLimited, Reason, Waits,
    limits::{Check, Limits, Outcome, PolicyCharge},
};

/// Waits for the turn of a request. `outcome` is the first decision. `None` means that the request first joins the
/// queue of its keys, if there is one.
pub(super) async fn turn(
    waits: Waits,
    charged: Charged,
    outcome: Option<Outcome>,
) -> Result<Charged, RateLimited> {
    let started = Instant::now();
    let mut turn = Turn {
        end: started + waits.max_wait,
        queues: waits.queues,
        charged,
        place: None,
    };
    let outcome = match turn.decide(outcome).await {
        Ok(()) => Outcome::Pass { charged: true },
        Err(reason) => Outcome::Reject(reason),
    };
    turn.charged.on_drop = OnDrop::Nothing;
    turn.charged.since = turn.charged.since.map(|_| Instant::now());
    if turn.place.is_some() {
        let waited = started.elapsed();
        turn.charged.limits.emitter.emit(|| Event::Waited(waited));
    }
    turn.charged.limits.admit(outcome, &turn.charged.check)?;
    Ok(turn.charged)
}

/// A request that waits for its turn.
struct Turn {
    queues: Arc<WaitQueues>,
    /// Declared before `charged`: a cancelled request leaves its queue before `charged` emits [`Event::Cancelled`].
    place: Option<QueuePlace>,
    charged: Charged,
    /// The end of the maximum wait. Waits for tokens and for earlier requests end here at the latest. A late answer of
    /// the backend can delay the turn beyond it.
    end: Instant,
}

impl Turn {
    async fn decide(&mut self, mut outcome: Option<Outcome>) -> Result<(), Reason> {
        if outcome.is_none() {
            self.place = self.join(None)?;
            self.wait_for_others().await?;
        }
        loop {
            let limits = &*self.charged.limits;
            let mut answer = outcome
                .take()
                .unwrap_or_else(|| limits.decide_charges(&mut self.charged.check));
            if let Outcome::Later = answer {
                answer = poll_fn(|cx| limits.poll(&mut self.charged.check, cx)).await;
            }
            match answer {
                Outcome::Reject(reason @ (Reason::Quota | Reason::ReducedCapacity))
                    if !limits.shadow =>
                {
                    let wait = self.charged.check.retry_after().ok_or(reason)?;
                    self.wait_for_tokens(wait).await?;
                }
                Outcome::Reject(reason) => return Err(reason),
                Outcome::Pass { .. } | Outcome::Later => return self.check_delay(),
            }
        }
    }

    /// Rejects a request whose delay in a leaky queue ends later than `end` plus the backend timeout. A delay starts
    /// when the backend has answered, so a delay of `max_wait` can end after `end`. The timeout allows for that.
    fn check_delay(&self) -> Result<(), Reason> {
        let delay = self.charged.limits.delay(&self.charged.check);
        let due = Instant::now().checked_add(delay);
        if delay.is_zero() || due.is_some_and(|due| due <= self.end + self.charged.limits.timeout) {
            return Ok(());
        }
        self.charged.limits.take_back(&self.charged.check, None);
        Err(Reason::TooLong)
    }

    /// Waits after a rejection, or fails if the wait is too long or too many requests wait. A request without a place
    /// joins the end of its queue. Then the first request of the queue waits for `wait`, in which its tokens usually
    /// return. Any other request waits until it is the first.
    async fn wait_for_tokens(&mut self, wait: Duration) -> Result<(), Reason> {
        let now = Instant::now();
        let turn = wait.saturating_add(leaky_queue_wait(&self.charged.limits, &self.charged.check));
        if now.checked_add(turn).is_none_or(|turn| turn > self.end) {
            return Err(Reason::TooLong);
        }
        let supplies = supplies(&self.charged.limits, &self.charged.check, now);
        match &self.place {
            Some(place) => place.set_supplies(supplies),
            None => self.place = self.join(Some(supplies))?,
        }
        if self.place.as_ref().is_some_and(QueuePlace::is_first) {
            sleep_until(now + wait).await;
            return Ok(());
        }
        self.wait_for_others().await
    }

    async fn wait_for_others(&mut self) -> Result<(), Reason> {
        let Some(place) = &mut self.place else {
            return Ok(());
        };
        let in_time = timeout_at(self.end, place.first()).await;
        in_time.map_err(|_| Reason::TooLong)
    }

    fn join(&self, supplies: Option<Supplies>) -> Result<Option<QueuePlace>, Reason> {
        let charges = self.charged.check.charges.iter();
        let spacing: Spacing = charges
            .map(|asked| time(&self.charged.limits, asked, asked.cost))
            .collect();
        let key = queue_key(&self.charged.check);
        self.queues.join(&key, &spacing, supplies, self.end)
    }
}

/// Returns whether no charge of a request has a quota of zero, and each charge costs at most the burst size of its
/// quota. If not, waiting for tokens is useless.
pub(super) fn can_pass(limits: &Limits, check: &Check) -> bool {
    check.charges.iter().all(|asked| {
        let burst = limits.rules[asked.rule].quota(asked).burst_size();
        asked.cost <= burst && !asked.has_zero_quota()
    })
}

/// Returns the key of a request's queue: the policies that apply to the request, and their keys.
fn queue_key(check: &Check) -> SmallVec<[u8; 128]> {
    let mut bytes = SmallVec::new();
    for asked in &check.charges {
        let key = asked.key(check.keys());
        bytes.extend_from_slice(&(asked.rule as u64).to_le_bytes());
        bytes.extend_from_slice(&(key.len() as u64).to_le_bytes());
        bytes.extend_from_slice(key);
    }
    bytes
}

/// Returns the longest `max_wait` of the leaky queues that rejected a request. Such a queue is full. After the wait for
/// a place, the request may have to wait for the whole queue, too.
fn leaky_queue_wait(limits: &Limits, check: &Check) -> Duration {
    let decided = check.charges.iter().zip(check.decisions.iter());
    let rejected = decided.filter(|(_, decision)| !decision.allowed);
    let waits = rejected.map(
        |(asked, _)| match limits.rules[asked.rule].policy.algorithm() {
            Algorithm::LeakyQueue { max_wait } => max_wait,
            _ => Duration::ZERO,
        },
    );
    waits.max().unwrap_or_default()
}

/// Returns the supply of tokens for the requests behind a rejected request.
fn supplies(limits: &Limits, check: &Check, now: Instant) -> Supplies {
    let decided = check.charges.iter().zip(check.decisions.iter());
    let supply = |(asked, decision): (&PolicyCharge, &Decision)| {
        if !decision.allowed {
            // At `due`, a bucket usually has just enough tokens for the rejected request, so none remain. With other
            // algorithms, the stock is always zero.
            let due = decision.retry_after.and_then(|wait| now.checked_add(wait));
            return Supply {
                from: due.unwrap_or(now),
                stock: Duration::ZERO,
            };
        }
        // The tokens that remain after this request, and one more, because part of a further token may have returned.
        let left = decision.remaining.saturating_sub(asked.cost);
        let stock = time(limits, asked, left.saturating_add(1));
        Supply { from: now, stock }
    };
    decided.map(supply).collect()
}

/// Returns the time in which a bucket gains this number of tokens, rounded down. Zero for other algorithms.
fn time(limits: &Limits, asked: &PolicyCharge, tokens: u64) -> Duration {
    let rule = &limits.rules[asked.rule];
    if !rule.policy.algorithm().is_bucket() {
        return Duration::ZERO;
    }
    let quota = rule.quota(asked);
    let nanos = quota.window().as_nanos().saturating_mul(tokens.into());
    let nanos = nanos / u128::from(quota.limit().max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
