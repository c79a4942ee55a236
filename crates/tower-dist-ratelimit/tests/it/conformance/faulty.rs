//! Backends that break one promise each.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use tower_dist_ratelimit::{
    BuildError, Decision, Decisions, Policy, Quota,
    backend::{Answer, Backend, BackendError, BoxFuture, Charge, JointDecision, Memory, PolicyId},
};

/// The fault of a backend.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    RemainingIsOneTooMany,
    NothingEverRemains,
    RefusesTheLast,
    IgnoresWants,
    RetryIsEarly,
    RetryIsLate,
    ResetIsEarly,
    ForgetsResets,
    RejectionsCharge,
    ForgetsRefunds,
    RefundsMoreThanTheCost,
    CutsKeysAtNul,
    CutsKeysAt1024,
    ReadsKeysAsText,
    TakesPartsForKeys,
    LooksThenTakes,
    ChargesOneByOne,
    IgnoresQuotas,
    SaysAnotherLimit,
    LetsNobodyWait,
    TellsThoseWhoPassToWait,
    RetryIsMuchTooEarly,
    RetryIsMuchTooLate,
    ResetIsLate,
    ResetIsMuchTooEarly,
    ResetIsFarAway,
    ResetOfRejectionsIsLate,
    ResetOfRejectionsIsEarly,
    UnusedKeysHaveAReset,
    RemainingNeverRises,
    ImpossibleRequestsCharge,
    ForgetsExtraCharges,
    MakesNoDebts,
    ChargesTheNextKeyToo,
    ResetsAllKeys,
    AllowsRefusedSets,
    GrantsInRefusedSets,
    TakesALimitOfZeroForNone,
    ForgetsWhenALimitIsRaised,
    KeepsALimitThatWasRaised,
    GivesNewIds,
    SaysThatCorrectionsFail,
    ResetsNoUnusedKeys,
    DecidesTwice,
    MixesTheDecisionsOnOneKey,
    ChargesOnePolicyOfOneKey,
}

pub(super) struct Faulty {
    memory: Arc<Memory>,
    fault: Fault,
    /// The memory of each charged key.
    seen: Mutex<HashMap<(PolicyId, Vec<u8>), Seen>>,
    registered: AtomicU32,
}

/// The wrong memory of a backend.
#[derive(Clone, Copy, Default)]
struct Seen {
    least: Option<u64>,
    quota: Option<Quota>,
}

impl Faulty {
    pub(super) fn new(fault: Fault) -> Self {
        Self {
            memory: Arc::default(),
            fault,
            seen: Mutex::default(),
            registered: AtomicU32::new(0),
        }
    }

    fn with_seen<T>(&self, charge: &Charge<'_>, look: impl FnOnce(&mut Seen) -> T) -> T {
        let key = (charge.policy, charge.key.to_vec());
        look(self.seen.lock().unwrap().entry(key).or_default())
    }

    /// Returns the charge that the backend makes in place of the requested charge.
    fn changed<'a>(&self, charge: &Charge<'_>, key: &'a [u8]) -> Charge<'a> {
        let mut changed = Charge::new(charge.policy, key, charge.cost).up_to(charge.up_to);
        changed.quota = charge.quota;
        let raised = |quota: &Quota| quota.limit() > 20;
        match self.fault {
            Fault::IgnoresWants => changed.up_to = charge.cost,
            Fault::IgnoresQuotas => changed.quota = None,
            Fault::TakesALimitOfZeroForNone => {
                changed.quota = changed.quota.filter(|quota| quota.limit() > 0);
            }
            Fault::ForgetsWhenALimitIsRaised if charge.quota.as_ref().is_some_and(raised) => {
                // A reset in memory takes effect before its future is polled.
                drop(self.memory.reset(charge.policy, key));
            }
            Fault::KeepsALimitThatWasRaised => self.with_seen(charge, |seen| {
                seen.quota = changed.quota.filter(raised).or(seen.quota);
                changed.quota = changed.quota.or(seen.quota);
            }),
            _ => self.with_seen(charge, |_| ()),
        }
        changed
    }

    fn key<'a>(&self, key: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
        let until = |byte| key.split(|b| *b == byte).next().unwrap_or_default();
        match self.fault {
            Fault::CutsKeysAtNul => until(0).into(),
            Fault::CutsKeysAt1024 => key[..key.len().min(1024)].into(),
            Fault::ReadsKeysAsText => String::from_utf8_lossy(key)
                .into_owned()
                .into_bytes()
                .into(),
            // A hash tag, as of a Redis Cluster.
            Fault::TakesPartsForKeys => match key.iter().position(|b| *b == b'{') {
                Some(open) if key[open + 1..].contains(&b'}') => {
                    let rest = &key[open + 1..];
                    rest.split(|b| *b == b'}').next().unwrap_or_default().into()
                }
                _ => key.into(),
            },
            _ => key.into(),
        }
    }

    fn acquire_one_by_one(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        let mut all = true;
        for (charge, out) in charges.iter().zip(out) {
            let answer = self.memory.acquire(&[*charge], std::slice::from_mut(out));
            all &= matches!(answer, Answer::Done(true));
        }
        Answer::Done(all)
    }

    /// Reads, waits and writes, without an atomic step.
    fn look_then_take(&self, charge: &Charge<'_>) -> Answer {
        let (memory, key) = (Arc::clone(&self.memory), charge.key.to_vec());
        let (policy, cost) = (charge.policy, charge.cost);
        Answer::Later(Box::pin(async move {
            let mut decisions = Decisions::rejected(1);
            memory.acquire(&[Charge::new(policy, &key, 0)], &mut decisions);
            tokio::task::yield_now().await;
            let seen = decisions[0];
            let allowed = seen.remaining >= cost;
            decisions[0] = if allowed {
                memory.settle(&[Charge::new(policy, &key, 0)], cost.cast_signed());
                Decision::allow(cost, seen.limit, seen.remaining - cost, seen.reset_after)
            } else {
                Decision::reject(seen.limit, seen.remaining, None, seen.reset_after)
            };
            Ok(JointDecision { allowed, decisions })
        }))
    }

    fn change(&self, charges: &[Charge<'_>], out: &mut [Decision]) {
        let (nano, much) = (Duration::from_nanos(1), Duration::from_millis(40));
        let rejected = out.iter().any(|out| !out.allowed);
        for (charge, out) in charges.iter().zip(out) {
            let retry = out.retry_after.filter(|wait| !wait.is_zero());
            match self.fault {
                Fault::RemainingIsOneTooMany => out.remaining += 1,
                Fault::NothingEverRemains => out.remaining = 0,
                Fault::RefusesTheLast if out.allowed && out.granted > 0 && out.remaining == 0 => {
                    *out = Decision::reject(out.limit, 0, Some(nano), out.reset_after);
                }
                Fault::RetryIsEarly if !out.allowed => out.retry_after = retry.map(|w| w - nano),
                Fault::RetryIsLate if !out.allowed => out.retry_after = retry.map(|w| w + nano),
                Fault::ResetIsEarly => out.reset_after = out.reset_after.saturating_sub(nano),
                Fault::RejectionsCharge if !out.allowed => {
                    self.memory.settle(&[*charge], 1);
                }
                Fault::ImpossibleRequestsCharge if !out.allowed && out.remaining > 0 => {
                    self.memory.settle(&[*charge], 1);
                }
                Fault::SaysAnotherLimit => out.limit += 1,
                Fault::LetsNobodyWait => out.delay = Duration::ZERO,
                Fault::TellsThoseWhoPassToWait if out.allowed => out.retry_after = Some(nano),
                Fault::RetryIsMuchTooEarly if !out.allowed => {
                    out.retry_after = retry.map(|wait| wait.saturating_sub(much).max(nano));
                }
                Fault::RetryIsMuchTooLate if !out.allowed => {
                    out.retry_after = retry.map(|wait| wait + much);
                }
                Fault::ResetIsLate if !out.reset_after.is_zero() => out.reset_after += nano,
                Fault::ResetIsMuchTooEarly if charge.cost == 0 => {
                    out.reset_after = out.reset_after.saturating_sub(much);
                }
                Fault::ResetIsFarAway if !out.reset_after.is_zero() => {
                    out.reset_after += 100 * much
                }
                Fault::ResetOfRejectionsIsLate if !out.allowed => out.reset_after += much,
                Fault::ResetOfRejectionsIsEarly if !out.allowed => {
                    out.reset_after = out.reset_after.saturating_sub(much);
                }
                Fault::UnusedKeysHaveAReset => out.reset_after = out.reset_after.max(nano),
                Fault::RemainingNeverRises => self.with_seen(charge, |seen| {
                    out.remaining = out.remaining.min(seen.least.unwrap_or(u64::MAX));
                    seen.least = Some(out.remaining);
                }),
                Fault::GrantsInRefusedSets if rejected && out.allowed => out.granted = 1,
                _ => {}
            }
        }
    }
}

impl Backend for Faulty {
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        match self.fault {
            Fault::GivesNewIds => {
                let first = self.registered.fetch_add(10, Relaxed);
                Ok((first..).map(PolicyId::new).take(policies.len()).collect())
            }
            _ => self.memory.register(policies),
        }
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        let keys: Vec<_> = charges.iter().map(|charge| self.key(charge.key)).collect();
        let charges: Vec<Charge<'_>> = charges
            .iter()
            .zip(&keys)
            .map(|(charge, key)| self.changed(charge, key))
            .collect();
        let answer = match (self.fault, &charges[..]) {
            (Fault::LooksThenTakes, [charge]) => return self.look_then_take(charge),
            (Fault::ChargesOneByOne, many) => self.acquire_one_by_one(many, out),
            (_, charges) => self.memory.acquire(charges, out),
        };
        self.change(&charges, out);
        if let [one, other] = &charges[..]
            && one.key == other.key
        {
            match self.fault {
                Fault::MixesTheDecisionsOnOneKey => out.swap(0, 1),
                // The charge to the second policy is made to the first one.
                Fault::ChargesOnePolicyOfOneKey if matches!(answer, Answer::Done(true)) => {
                    self.memory.settle(&[*other], -other.cost.cast_signed());
                    self.memory.settle(&[*one], other.cost.cast_signed());
                }
                _ => {}
            }
        }
        match answer {
            Answer::Done(allowed) if matches!(self.fault, Fault::DecidesTwice) => {
                let mut decisions = Decisions::rejected(2 * out.len());
                decisions[..out.len()].copy_from_slice(out);
                let twice = JointDecision { allowed, decisions };
                Answer::Later(Box::pin(std::future::ready(Ok(twice))))
            }
            Answer::Done(allowed) => match self.fault {
                Fault::AllowsRefusedSets if charges.len() > 1 => Answer::Done(true),
                Fault::AllowsRefusedSets => Answer::Done(allowed),
                _ => Answer::Done(out.iter().all(|decision| decision.allowed)),
            },
            other => other,
        }
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        match self.fault {
            Fault::ForgetsRefunds if delta < 0 => Answer::Done(true),
            Fault::SaysThatCorrectionsFail => {
                self.memory.settle(charges, delta);
                Answer::Done(false)
            }
            Fault::RefundsMoreThanTheCost => {
                let charges: Vec<_> = charges
                    .iter()
                    .map(|charge| Charge::new(charge.policy, charge.key, u64::MAX))
                    .collect();
                self.memory.settle(&charges, delta)
            }
            Fault::ForgetsExtraCharges if delta > 0 => Answer::Done(true),
            Fault::MakesNoDebts if delta > 0 => {
                let mut left = Decisions::rejected(1);
                let look = Charge::new(charges[0].policy, charges[0].key, 0);
                self.memory.acquire(&[look], &mut left);
                let left = left[0].remaining.cast_signed();
                self.memory.settle(charges, delta.min(left))
            }
            Fault::ChargesTheNextKeyToo => {
                let mut next = charges[0].key.to_vec();
                *next.last_mut().unwrap() += 1;
                let next = Charge::new(charges[0].policy, &next, charges[0].cost);
                self.memory.settle(&[next], delta.max(0));
                self.memory.settle(charges, delta)
            }
            _ => self.memory.settle(charges, delta),
        }
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        match self.fault {
            Fault::ForgetsResets => Box::pin(std::future::ready(Ok(()))),
            Fault::ResetsNoUnusedKeys
                if !self
                    .seen
                    .lock()
                    .unwrap()
                    .contains_key(&(policy, key.to_vec())) =>
            {
                let error = BackendError::new("no such key");
                Box::pin(std::future::ready(Err(error)))
            }
            Fault::ResetsAllKeys => {
                for (policy, key) in self.seen.lock().unwrap().keys() {
                    drop(self.memory.reset(*policy, key));
                }
                self.memory.reset(policy, key)
            }
            _ => self.memory.reset(policy, key),
        }
    }
}
