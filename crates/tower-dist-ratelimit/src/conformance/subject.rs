use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Checked, Conformance, Violation,
    violation::{equal, succeeds, within},
};
use crate::{
    Algorithm, Decision, Decisions, Policy, Quota,
    arithmetic::saturating_nanos,
    backend::{Answer, Backend, Charge, JointDecision, PolicyId},
};

/// A limit for quotas of the kit: low enough to exhaust quickly, and to fit in a sliding window log.
pub(super) const LIMIT: u64 = 20;

/// A quota with such a long window that tokens hardly ever become free again during a check.
pub(super) const FROZEN: Quota = Quota::new(LIMIT, Duration::from_secs(30 * 86_400));

/// A quota with a window that is short enough to wait for, and longer than the grain of usual clocks.
pub(super) const QUICK: Quota = Quota::new(LIMIT, Duration::from_secs(2));

/// One check of one algorithm.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) kit: Arc<Conformance>,
    pub(super) check: &'static str,
    pub(super) algorithm: Algorithm,
}

/// The policy under test, in a backend.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) case: Case,
    pub(super) quota: Quota,
    backend: Arc<dyn Backend>,
    policy: PolicyId,
    started: Instant,
}

impl Case {
    /// Registers a policy that is decided alone.
    pub(super) fn subject(&self, quota: Quota) -> Result<Subject, Violation> {
        let policies = [(self.algorithm, quota)];
        Ok(self.subjects(&policies, false)?.remove(0))
    }

    /// Registers policies that one backend decides together. If `dynamic`, a charge can have its own quota.
    pub(super) fn subjects(
        &self,
        policies: &[(Algorithm, Quota)],
        dynamic: bool,
    ) -> Result<Vec<Subject>, Violation> {
        let (backend, started) = ((self.kit.backend)(), Instant::now());
        let mut registered = Vec::new();
        for (number, &(mut algorithm, quota)) in policies.iter().enumerate() {
            if let Algorithm::LeakyQueue { max_wait } = &mut algorithm {
                // With this `max_wait`, a queue holds about as many requests as the limit.
                *max_wait = quota.window();
            }
            // Each algorithm gets its own policy name: policies with one name could share their state.
            let name = format!("kit {} {} {algorithm} {number}", self.kit.seed, self.check);
            let mut policy = Policy::new(name, quota).counted(algorithm);
            policy.backend.dynamic_quotas = dynamic;
            succeeds("register", policy.check())?;
            registered.push(policy);
        }
        let ids = succeeds("register", backend.register(&registered))?;
        let again = succeeds("register", backend.register(&registered))?;
        equal("register", "the ids of an equal set", &ids, &again)?;
        equal("register", "the number of ids", registered.len(), ids.len())?;
        let subjects = registered.iter().zip(ids).map(|(policy, id)| Subject {
            case: Case {
                algorithm: policy.algorithm(),
                ..self.clone()
            },
            quota: policy.quota(),
            backend: Arc::clone(&backend),
            policy: id,
            started,
        });
        Ok(subjects.collect())
    }
}

impl Subject {
    /// Returns this check's key with the given name.
    pub(super) fn key(&self, name: &str) -> Vec<u8> {
        format!("{}-{}-{name}", self.case.kit.seed, self.case.check).into_bytes()
    }

    /// Returns the time since the backend was created, in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        saturating_nanos(self.started.elapsed())
    }

    /// Lets time pass on the backend's clock.
    pub(super) async fn pass(&self, time: Duration) {
        self.case.kit.clock.pass(time).await;
    }

    /// Returns the [grain](super::Clock::grain) of the backend's clock.
    pub(super) fn grain(&self) -> Duration {
        self.case.kit.clock.grain()
    }

    pub(super) fn charge<'a>(&self, key: &'a [u8], cost: u64) -> Charge<'a> {
        Charge::new(self.policy, key, cost)
    }

    pub(super) async fn ask(&self, charge: Charge<'_>) -> Result<Decision, Violation> {
        let joint = self.ask_all(&[charge]).await?;
        let decision = joint.decisions[0];
        equal("acquire", "the answer", decision.allowed, joint.allowed)?;
        Ok(decision)
    }

    pub(super) async fn take(&self, key: &[u8], cost: u64) -> Result<Decision, Violation> {
        self.ask(self.charge(key, cost)).await
    }

    pub(super) async fn look(&self, key: &[u8]) -> Result<Decision, Violation> {
        self.take(key, 0).await
    }

    /// Returns the remaining tokens of an unused key.
    pub(super) async fn unused(&self, key: &[u8]) -> Result<u64, Violation> {
        let remaining = self.look(key).await?.remaining;
        let operation = "a look at an unused key";
        within(operation, "remaining", LIMIT..=u64::MAX, remaining)?;
        Ok(remaining)
    }

    /// Takes all free tokens of a key, and returns their number.
    pub(super) async fn exhaust(&self, key: &[u8]) -> Result<u64, Violation> {
        let mut taken = 0;
        while self.take(key, 1).await?.allowed {
            taken += 1;
            within("acquire until rejected", "granted", 0..=10 * LIMIT, taken)?;
        }
        Ok(taken)
    }

    /// Makes these charges together, as the charges of one request.
    pub(super) async fn ask_all(&self, charges: &[Charge<'_>]) -> Result<JointDecision, Violation> {
        let mut out = Decisions::rejected(charges.len());
        let answer = self.backend.acquire(charges, &mut out);
        answered("acquire", answer, out).await
    }

    pub(super) async fn settle(&self, charge: Charge<'_>, delta: i64) -> Checked {
        let answer = self.backend.settle(&[charge], delta);
        let joint = answered("settle", answer, Decisions::rejected(0)).await?;
        equal("settle", "the answer", true, joint.allowed)
    }

    pub(super) async fn reset(&self, key: &[u8]) -> Checked {
        succeeds("reset", self.backend.reset(self.policy, key).await)
    }
}

/// Waits for an answer. An immediate answer has its decisions in `decisions`. A later answer must bring as many
/// decisions as `decisions` holds.
async fn answered(
    operation: &str,
    answer: Answer,
    decisions: Decisions,
) -> Result<JointDecision, Violation> {
    let number = decisions.len();
    let answer = match answer {
        Answer::Done(allowed) => Ok(JointDecision { allowed, decisions }),
        Answer::Failed(error) => Err(error),
        Answer::Later(answer) => answer.await,
    };
    let joint = succeeds(operation, answer)?;
    let field = "the number of decisions";
    equal(operation, field, number, joint.decisions.len())?;
    Ok(joint)
}
