//! The kit for those who write a backend: the one in memory passes, and each check finds the backend that breaks what it
//! is about.

use std::{sync::Arc, time::Duration};

use tower_dist_ratelimit::{
    Algorithm, BuildError, Decision, Decisions, Policy,
    backend::{
        Answer, Backend, BackendError, BoxFuture, Capabilities, Charge, Memory, PolicyId, Verdict,
    },
    conformance::{Clock, Conformance, Sleeping},
};

/// The clock that moves only when it is told to.
struct Paused;

impl Clock for Paused {
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::advance(time))
    }

    fn grain(&self) -> Duration {
        Duration::ZERO
    }
}

#[tokio::test(start_paused = true)]
async fn memory_keeps_all_promises_to_the_nanosecond() {
    Conformance::new(Memory::default, Paused)
        .run()
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn memory_keeps_all_promises_by_a_clock_that_cannot_be_paused() {
    let clock = Sleeping::new(Duration::from_millis(2));
    Conformance::new(Memory::default, clock)
        .seed(7)
        .run()
        .await
        .unwrap();
}

/// The one check that is about threads; it waits for nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_admits_exactly_what_there_is_to_threads_that_race() {
    let clock = Sleeping::new(Duration::from_millis(2));
    Conformance::new(Memory::default, clock)
        .only("racing")
        .run()
        .await
        .unwrap();
}

/// What a backend does wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    RemainingIsOneTooMany,
    RefusesTheLast,
    IgnoresWants,
    RetryIsEarly,
    RetryIsLate,
    ResetIsEarly,
    ForgetsResets,
    RefusalsCharge,
    ForgetsRefunds,
    RefundsMoreThanTheCost,
    CutsKeysAtNul,
    CutsKeysAt1024,
    ReadsKeysAsText,
    TakesPartsForKeys,
    LooksThenTakes,
    ChargesOneByOne,
    IgnoresQuotas,
}

struct Faulty {
    memory: Arc<Memory>,
    fault: Fault,
}

impl Faulty {
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

    /// What many do over a store: read, think, write.
    fn look_then_take(&self, charge: &Charge<'_>) -> Answer {
        let (memory, key) = (Arc::clone(&self.memory), charge.key.to_vec());
        let (policy, cost) = (charge.policy, charge.cost);
        Answer::Later(Box::pin(async move {
            let mut decisions = Decisions::refused(1);
            memory.acquire(&[Charge::new(policy, &key, 0)], &mut decisions);
            tokio::task::yield_now().await;
            let seen = decisions[0];
            let allowed = seen.remaining >= cost;
            decisions[0] = if allowed {
                memory.settle(&[Charge::new(policy, &key, 0)], cost.cast_signed());
                Decision::allow(cost, seen.limit, seen.remaining - cost, seen.reset_after)
            } else {
                Decision::refuse(seen.limit, seen.remaining, None, seen.reset_after)
            };
            Ok(Verdict { allowed, decisions })
        }))
    }

    fn change(&self, charges: &[Charge<'_>], out: &mut [Decision]) {
        let nano = Duration::from_nanos(1);
        for (charge, out) in charges.iter().zip(out) {
            let retry = out.retry_after.filter(|wait| !wait.is_zero());
            match self.fault {
                Fault::RemainingIsOneTooMany => out.remaining += 1,
                Fault::RefusesTheLast if out.allowed && out.granted > 0 && out.remaining == 0 => {
                    *out = Decision::refuse(out.limit, 0, Some(nano), out.reset_after);
                }
                Fault::RetryIsEarly if !out.allowed => out.retry_after = retry.map(|w| w - nano),
                Fault::RetryIsLate if !out.allowed => out.retry_after = retry.map(|w| w + nano),
                Fault::ResetIsEarly => out.reset_after = out.reset_after.saturating_sub(nano),
                Fault::RefusalsCharge if !out.allowed => {
                    self.memory.settle(&[*charge], 1);
                }
                _ => {}
            }
        }
    }
}

impl Backend for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.memory.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        let keys: Vec<_> = charges.iter().map(|charge| self.key(charge.key)).collect();
        let charges: Vec<Charge<'_>> = charges
            .iter()
            .zip(&keys)
            .map(|(charge, key)| {
                let mut charge = *charge;
                charge.key = key;
                match self.fault {
                    Fault::IgnoresWants => charge.want = charge.cost,
                    Fault::IgnoresQuotas => charge.quota = None,
                    _ => {}
                }
                charge
            })
            .collect();
        let answer = match (self.fault, &charges[..]) {
            (Fault::LooksThenTakes, [charge]) => return self.look_then_take(charge),
            (Fault::ChargesOneByOne, many) => self.acquire_one_by_one(many, out),
            (_, charges) => self.memory.acquire(charges, out),
        };
        self.change(&charges, out);
        match answer {
            Answer::Done(_) => Answer::Done(out.iter().all(|decision| decision.allowed)),
            other => other,
        }
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        match self.fault {
            Fault::ForgetsRefunds if delta < 0 => Answer::Done(true),
            Fault::RefundsMoreThanTheCost => {
                let charges: Vec<_> = charges
                    .iter()
                    .map(|charge| Charge::new(charge.policy, charge.key, u64::MAX))
                    .collect();
                self.memory.settle(&charges, delta)
            }
            _ => self.memory.settle(charges, delta),
        }
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        match self.fault {
            Fault::ForgetsResets => Box::pin(std::future::ready(Ok(()))),
            _ => self.memory.reset(policy, key),
        }
    }
}

fn kit(fault: Fault) -> Conformance {
    let faulty = move || Faulty {
        memory: Arc::new(Memory::default()),
        fault,
    };
    Conformance::new(faulty, Paused)
}

#[tokio::test(start_paused = true)]
async fn each_check_finds_the_backend_that_breaks_what_it_is_about() {
    for (fault, check) in [
        (Fault::RemainingIsOneTooMany, "decisions"),
        (Fault::RefusesTheLast, "decisions"),
        (Fault::IgnoresWants, "decisions"),
        (Fault::RetryIsEarly, "retry"),
        (Fault::RetryIsLate, "retry"),
        (Fault::ResetIsEarly, "expiry"),
        (Fault::RefusalsCharge, "nothing written"),
        (Fault::ForgetsRefunds, "refunds"),
        (Fault::RefundsMoreThanTheCost, "refunds"),
        (Fault::ForgetsResets, "reset"),
        (Fault::CutsKeysAtNul, "keys"),
        (Fault::CutsKeysAt1024, "keys"),
        (Fault::ReadsKeysAsText, "keys"),
        (Fault::TakesPartsForKeys, "keys"),
        (Fault::LooksThenTakes, "racing"),
        (Fault::ChargesOneByOne, "all or nothing"),
        (Fault::IgnoresQuotas, "dynamic quotas"),
    ] {
        let alone = kit(fault).only(check).run().await;
        let violation = alone.expect_err(&format!("{check} does not find {fault:?}"));
        assert_eq!(violation.check(), check, "{fault:?}");
        let all = kit(fault).run().await;
        assert!(all.is_err(), "{fault:?} passes");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_backend_says_it_does_not_have_it_has_to_refuse() {
    let kit = Conformance::new(Memory::default, Paused).algorithms([Algorithm::TokenBucket]);
    let violation = kit.run().await.unwrap_err();
    assert_eq!(violation.check(), "building");
    assert_ne!(violation.algorithm(), Algorithm::TokenBucket);
}

#[tokio::test(start_paused = true)]
async fn what_a_backend_does_not_claim_is_not_asked_of_it() {
    let kit = |fault| kit(fault).sequences(5);
    kit(Fault::IgnoresWants)
        .without_leases()
        .run()
        .await
        .unwrap();
    kit(Fault::IgnoresQuotas)
        .without_dynamic_quotas()
        .run()
        .await
        .unwrap();
}
