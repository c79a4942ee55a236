use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Conformance, Violation,
    clock::Clock,
    violation::{Found, found},
};
use crate::{
    Algorithm, BuildError, Decision, Decisions, Policy, Quota,
    algorithm::saturating_nanos,
    backend::{Answer, Backend, Charge, PolicyId},
    model::Model,
};

/// The limit of all the kit's quotas: few enough to reach it soon, and to keep in any log.
pub(super) const LIMIT: u64 = 20;

/// So long that nothing comes back during a check.
const FROZEN: Duration = Duration::from_secs(30 * 86_400);

/// Short enough to wait for, long enough for any clock's grain.
const QUICK: Duration = Duration::from_secs(2);

/// One policy of one backend, under one check.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) check: &'static str,
    pub(super) algorithm: Algorithm,
    pub(super) quota: Quota,
    pub(super) clock: Arc<dyn Clock>,
    backend: Arc<dyn Backend>,
    policy: PolicyId,
    started: Instant,
    prefix: String,
}

/// Several policies that are decided together.
pub(super) struct Set {
    pub(super) members: Vec<Subject>,
}

impl Subject {
    /// A policy of this limit under which nothing comes back.
    pub(super) fn frozen(
        kit: &Conformance,
        check: &'static str,
        algorithm: Algorithm,
    ) -> Result<Self, Violation> {
        Self::one(kit, check, algorithm, Quota::new(LIMIT, FROZEN), false)
    }

    /// A policy that can be waited for.
    pub(super) fn quick(
        kit: &Conformance,
        check: &'static str,
        algorithm: Algorithm,
    ) -> Result<Self, Violation> {
        Self::one(kit, check, algorithm, Quota::new(LIMIT, QUICK), false)
    }

    /// A policy to which charges can bring quotas.
    pub(super) fn dynamic(
        kit: &Conformance,
        check: &'static str,
        algorithm: Algorithm,
    ) -> Result<Self, Violation> {
        Self::one(kit, check, algorithm, Quota::new(LIMIT, FROZEN), true)
    }

    pub(super) fn one(
        kit: &Conformance,
        check: &'static str,
        algorithm: Algorithm,
        quota: Quota,
        dynamic: bool,
    ) -> Result<Self, Violation> {
        let mut set = Set::new(kit, check, &[(algorithm, quota)], dynamic)?;
        Ok(set.members.remove(0))
    }

    pub(super) fn model(&self) -> Model {
        Model::new(self.algorithm, self.quota)
    }

    /// A key that no other check has.
    pub(super) fn key(&self, name: &str) -> Vec<u8> {
        format!("{}-{name}", self.prefix).into_bytes()
    }

    /// Nanoseconds since the backend was made.
    pub(super) fn now(&self) -> u64 {
        saturating_nanos(self.started.elapsed())
    }

    pub(super) fn broken(&self, found: Found) -> Violation {
        Violation::new(self.check, self.algorithm, found)
    }

    fn failed(&self, operation: &str, error: impl std::fmt::Display) -> Violation {
        self.broken(found(operation, "error", "none", error.to_string()))
    }

    /// Fails unless it is so.
    pub(super) fn promise(
        &self,
        kept: bool,
        found: impl FnOnce() -> Found,
    ) -> Result<(), Violation> {
        if kept {
            Ok(())
        } else {
            Err(self.broken(found()))
        }
    }

    pub(super) fn charge<'a>(&self, key: &'a [u8], cost: u64) -> Charge<'a> {
        Charge::new(self.policy, key, cost)
    }

    pub(super) async fn ask(&self, charge: Charge<'_>) -> Result<Decision, Violation> {
        let (allowed, decisions) = self.ask_all(&[charge]).await?;
        let decision = decisions[0];
        self.promise(allowed == decision.allowed, || {
            found("acquire", "the answer", decision.allowed, allowed)
        })?;
        Ok(decision)
    }

    pub(super) async fn take(&self, key: &[u8], cost: u64) -> Result<Decision, Violation> {
        self.ask(self.charge(key, cost)).await
    }

    pub(super) async fn look(&self, key: &[u8]) -> Result<Decision, Violation> {
        self.take(key, 0).await
    }

    /// Takes all there is; how much that was.
    pub(super) async fn exhaust(&self, key: &[u8]) -> Result<u64, Violation> {
        let mut taken = 0;
        while self.take(key, 1).await?.allowed {
            taken += 1;
            self.promise(taken <= 10 * LIMIT, || {
                found("acquire until rejected", "granted", LIMIT, taken)
            })?;
        }
        Ok(taken)
    }

    async fn ask_all(&self, charges: &[Charge<'_>]) -> Result<(bool, Decisions), Violation> {
        let mut out = Decisions::rejected(charges.len());
        let answer = self.backend.acquire(charges, &mut out);
        match answer {
            Answer::Done(allowed) => Ok((allowed, out)),
            Answer::Failed(error) => Err(self.failed("acquire", error)),
            Answer::Later(answer) => {
                let verdict = answer
                    .await
                    .map_err(|error| self.failed("acquire", error))?;
                let (asked, told) = (charges.len(), verdict.decisions.len());
                self.promise(asked == told, || {
                    found("acquire", "the number of decisions", asked, told)
                })?;
                Ok((verdict.allowed, verdict.decisions))
            }
        }
    }

    pub(super) async fn settle(&self, charge: Charge<'_>, delta: i64) -> Result<(), Violation> {
        match self.backend.settle(&[charge], delta) {
            Answer::Done(_) => Ok(()),
            Answer::Failed(error) => Err(self.failed("settle", error)),
            Answer::Later(answer) => match answer.await {
                Ok(_) => Ok(()),
                Err(error) => Err(self.failed("settle", error)),
            },
        }
    }

    pub(super) async fn reset(&self, key: &[u8]) -> Result<(), Violation> {
        let done = self.backend.reset(self.policy, key);
        done.await.map_err(|error| self.failed("reset", error))
    }
}

impl Set {
    /// Policies that one backend decides together.
    pub(super) fn new(
        kit: &Conformance,
        check: &'static str,
        policies: &[(Algorithm, Quota)],
        dynamic: bool,
    ) -> Result<Self, Violation> {
        let (algorithm, _) = policies[0];
        let broken = |error: BuildError| {
            let found = found("register", "error", "none", error.to_string());
            Violation::new(check, algorithm, found)
        };
        let backend = (kit.backend)();
        let started = Instant::now();
        let named = |number: usize, algorithm, quota| {
            let name = format!("kit {} {check} {} {number}", kit.seed, label(algorithm));
            let policy = Policy::new(name, quota).counted(algorithm);
            if dynamic {
                policy.dynamic_quotas()
            } else {
                policy
            }
        };
        let fitted: Vec<(Algorithm, Quota)> = policies
            .iter()
            .map(|&(algorithm, quota)| (fitted(algorithm, quota), quota))
            .collect();
        let policies: Vec<Policy> = fitted
            .iter()
            .enumerate()
            .map(|(number, &(algorithm, quota))| named(number, algorithm, quota))
            .collect();
        for policy in &policies {
            policy.check().map_err(broken)?;
        }
        let ids = backend.register(&policies).map_err(broken)?;
        if ids.len() != policies.len() {
            let found = found("register", "the number of ids", policies.len(), ids.len());
            return Err(Violation::new(check, algorithm, found));
        }
        let members = fitted.into_iter().zip(ids);
        let members = members.map(|((algorithm, quota), policy)| Subject {
            check,
            algorithm,
            quota,
            clock: Arc::clone(&kit.clock),
            backend: Arc::clone(&backend),
            policy,
            started,
            prefix: format!("{}-{check}", kit.seed),
        });
        Ok(Self {
            members: members.collect(),
        })
    }

    /// Asks all, each of these costs of its own key.
    pub(super) async fn take(
        &self,
        keys: &[Vec<u8>],
        cost: u64,
    ) -> Result<(bool, Decisions), Violation> {
        let charges: Vec<Charge<'_>> = self
            .members
            .iter()
            .zip(keys)
            .map(|(member, key)| member.charge(key, cost))
            .collect();
        self.members[0].ask_all(&charges).await
    }
}

/// So that no two algorithms share a name, and with it their state.
fn label(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::TokenBucket => "bucket",
        Algorithm::LeakyBucket => "meter",
        Algorithm::LeakyQueue { .. } => "queue",
        Algorithm::FixedWindow { .. } => "fixed",
        Algorithm::FixedWindowFromFirstRequest => "first",
        Algorithm::SlidingWindow => "two",
        Algorithm::SlidingWindowBuckets { .. } => "sub",
        Algorithm::SlidingWindowStrict { .. } => "whole",
        Algorithm::SlidingWindowLog => "log",
    }
}

/// A queue as long as the window, so that about the limit fits in.
fn fitted(algorithm: Algorithm, quota: Quota) -> Algorithm {
    match algorithm {
        Algorithm::LeakyQueue { .. } => Algorithm::LeakyQueue {
            max_wait: quota.window(),
        },
        other => other,
    }
}
