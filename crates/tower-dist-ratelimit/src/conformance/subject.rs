use std::{fmt, mem::discriminant, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{ALL, Checked, Conformance, Violation, clock::Clock};
use crate::{
    Algorithm, Decision, Decisions, Policy, Quota,
    arithmetic::{Limit, State, saturating_nanos},
    backend::{Answer, Backend, Charge, PolicyId},
};

/// The limit of the kit's quotas: low enough to exhaust quickly, and to fit in any log.
pub(super) const LIMIT: u64 = 20;

/// A quota under which no token comes back during a check.
pub(super) const FROZEN: Quota = Quota::new(LIMIT, Duration::from_secs(30 * 86_400));

/// A quota with a window that is short enough to wait for, and longer than the grain of any clock.
pub(super) const QUICK: Quota = Quota::new(LIMIT, Duration::from_secs(2));

/// One policy of one backend, under one check.
#[derive(Clone)]
pub(super) struct Subject {
    check: &'static str,
    pub(super) algorithm: Algorithm,
    pub(super) quota: Quota,
    pub(super) clock: Arc<dyn Clock>,
    backend: Arc<dyn Backend>,
    policy: PolicyId,
    started: Instant,
    prefix: String,
}

/// Policies that are decided together.
pub(super) struct Subjects {
    pub(super) members: Vec<Subject>,
}

impl Subject {
    /// Registers one policy, which is decided alone. If `dynamic`, a charge can have its own quota.
    pub(super) fn one(
        kit: &Conformance,
        check: &'static str,
        algorithm: Algorithm,
        quota: Quota,
        dynamic: bool,
    ) -> Result<Self, Violation> {
        let mut set = Subjects::new(kit, check, &[(algorithm, quota)], dynamic)?;
        Ok(set.members.remove(0))
    }

    /// Returns the state of an unused key by the arithmetic.
    pub(super) fn unused(&self) -> Result<State, Violation> {
        let limit = Limit::new(self.algorithm, self.quota);
        Ok(limit
            .map_err(|error| self.failed("register", error))?
            .unused(0))
    }

    /// Returns a key that no other check uses.
    pub(super) fn key(&self, name: &str) -> Vec<u8> {
        format!("{}-{name}", self.prefix).into_bytes()
    }

    /// Nanoseconds since the backend was made.
    pub(super) fn now(&self) -> u64 {
        saturating_nanos(self.started.elapsed())
    }

    pub(super) fn broken(
        &self,
        operation: impl fmt::Display,
        field: &'static str,
        expected: impl fmt::Display,
        actual: impl fmt::Debug,
    ) -> Violation {
        Violation {
            check: self.check,
            algorithm: self.algorithm,
            operation: operation.to_string(),
            field,
            expected: expected.to_string(),
            actual: format!("{actual:?}"),
        }
    }

    /// Fails unless the promise is kept.
    pub(super) fn promise(
        &self,
        kept: bool,
        operation: impl fmt::Display,
        field: &'static str,
        expected: impl fmt::Display,
        actual: impl fmt::Debug,
    ) -> Checked {
        match kept {
            true => Ok(()),
            false => Err(self.broken(operation, field, expected, actual)),
        }
    }

    /// A violation by an operation that failed.
    fn failed(&self, operation: &str, error: impl fmt::Display) -> Violation {
        self.broken(operation, "error", "none", format_args!("{error}"))
    }

    /// Fails unless two values are equal.
    pub(super) fn equal<T: PartialEq + fmt::Debug>(
        &self,
        operation: impl fmt::Display,
        field: &'static str,
        expected: T,
        actual: T,
    ) -> Checked {
        let kept = expected == actual;
        self.promise(kept, operation, field, format_args!("{expected:?}"), actual)
    }

    /// Fails unless a request is allowed or rejected as `expected`.
    pub(super) fn allows(
        &self,
        operation: impl fmt::Display,
        expected: bool,
        seen: Decision,
    ) -> Checked {
        let kept = seen.allowed == expected;
        self.promise(kept, operation, "allowed", expected, seen)
    }

    /// Fails unless a key has `expected` remaining tokens.
    pub(super) fn remains(
        &self,
        operation: impl fmt::Display,
        expected: u64,
        seen: Decision,
    ) -> Checked {
        let kept = seen.remaining == expected;
        self.promise(kept, operation, "remaining", expected, seen)
    }

    /// Fails unless a decision is as on an `unused` key.
    pub(super) fn is_unused(
        &self,
        operation: impl fmt::Display,
        unused: Decision,
        seen: Decision,
    ) -> Checked {
        let kept = seen.remaining == unused.remaining && seen.reset_after.is_zero();
        let expected = format_args!("as of an unused key, {unused:?}");
        self.promise(kept, operation, "remaining", expected, seen)
    }

    pub(super) fn charge<'a>(&self, key: &'a [u8], cost: u64) -> Charge<'a> {
        Charge::new(self.policy, key, cost)
    }

    pub(super) async fn ask(&self, charge: Charge<'_>) -> Result<Decision, Violation> {
        let (allowed, decisions) = self.ask_all(&[charge]).await?;
        let decision = decisions[0];
        self.equal("acquire", "the answer", decision.allowed, allowed)?;
        Ok(decision)
    }

    pub(super) async fn take(&self, key: &[u8], cost: u64) -> Result<Decision, Violation> {
        self.ask(self.charge(key, cost)).await
    }

    pub(super) async fn look(&self, key: &[u8]) -> Result<Decision, Violation> {
        self.take(key, 0).await
    }

    /// Takes all tokens of a key. Returns their number.
    pub(super) async fn exhaust(&self, key: &[u8]) -> Result<u64, Violation> {
        let mut taken = 0;
        while self.take(key, 1).await?.allowed {
            taken += 1;
            let ends = taken <= 10 * LIMIT;
            self.promise(ends, "acquire until rejected", "granted", LIMIT, taken)?;
        }
        Ok(taken)
    }

    async fn ask_all(&self, charges: &[Charge<'_>]) -> Result<(bool, Decisions), Violation> {
        let mut out = Decisions::rejected(charges.len());
        let answer = self.backend.acquire(charges, &mut out);
        let (allowed, decisions) = self.answered("acquire", answer, out).await?;
        let field = "the number of decisions";
        self.equal("acquire", field, charges.len(), decisions.len())?;
        Ok((allowed, decisions))
    }

    /// Waits for an answer. The decisions of an immediate answer are in `out`.
    async fn answered(
        &self,
        operation: &str,
        answer: Answer,
        out: Decisions,
    ) -> Result<(bool, Decisions), Violation> {
        let answer = match answer {
            Answer::Done(allowed) => return Ok((allowed, out)),
            Answer::Failed(error) => Err(error),
            Answer::Later(answer) => answer.await,
        };
        let joint = answer.map_err(|error| self.failed(operation, error))?;
        Ok((joint.allowed, joint.decisions))
    }

    pub(super) async fn settle(&self, charge: Charge<'_>, delta: i64) -> Checked {
        let answer = self.backend.settle(&[charge], delta);
        let none = Decisions::rejected(0);
        self.answered("settle", answer, none).await.map(drop)
    }

    pub(super) async fn reset(&self, key: &[u8]) -> Checked {
        let done = self.backend.reset(self.policy, key).await;
        done.map_err(|error| self.failed("reset", error))
    }
}

impl Subjects {
    /// Policies that one backend decides together.
    pub(super) fn new(
        kit: &Conformance,
        check: &'static str,
        policies: &[(Algorithm, Quota)],
        dynamic: bool,
    ) -> Result<Self, Violation> {
        let backend = (kit.backend)();
        let started = Instant::now();
        let mut members = Vec::new();
        let mut registered = Vec::new();
        for (number, &(algorithm, quota)) in policies.iter().enumerate() {
            let algorithm = match algorithm {
                // About the limit fits in a queue of one window.
                Algorithm::LeakyQueue { .. } => Algorithm::LeakyQueue {
                    max_wait: quota.window(),
                },
                other => other,
            };
            // Algorithms that share a name would share their state.
            let label = ALL
                .iter()
                .position(|one| discriminant(one) == discriminant(&algorithm))
                .unwrap_or(0);
            let name = format!("kit {} {check} {label} {number}", kit.seed);
            let policy = Policy::new(name, quota).counted(algorithm);
            registered.push(if dynamic {
                policy.dynamic_quotas()
            } else {
                policy
            });
            members.push(Subject {
                check,
                algorithm,
                quota,
                clock: Arc::clone(&kit.clock),
                backend: Arc::clone(&backend),
                policy: PolicyId::new(0),
                started,
                prefix: format!("{}-{check}", kit.seed),
            });
        }
        let first = &members[0];
        let failed = |error| first.failed("register", error);
        for policy in &registered {
            policy.check().map_err(failed)?;
        }
        let ids = backend.register(&registered).map_err(failed)?;
        let field = "the number of ids";
        first.equal("register", field, members.len(), ids.len())?;
        for (member, policy) in members.iter_mut().zip(ids) {
            member.policy = policy;
        }
        Ok(Self { members })
    }

    /// Makes one charge of `cost` per policy, each with its own key.
    pub(super) async fn take(
        &self,
        keys: &[Vec<u8>],
        cost: u64,
    ) -> Result<(bool, Decisions), Violation> {
        let charges = self.members.iter().zip(keys);
        let charges: Vec<_> = charges.map(|(one, key)| one.charge(key, cost)).collect();
        self.members[0].ask_all(&charges).await
    }
}
