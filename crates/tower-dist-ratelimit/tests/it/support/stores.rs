//! Backends with scripted behaviour.

use std::{
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;
use tower_dist_ratelimit::{
    BuildError, Decision, Decisions, Policy, Quota,
    backend::{Answer, Backend, BackendError, BoxFuture, Charge, JointDecision, Memory, PolicyId},
};

/// Decides like [`Memory`], after a delay.
pub(crate) struct Remote {
    memory: Memory,
    delay: Arc<Mutex<Duration>>,
}

impl Remote {
    pub(crate) fn after(delay: Duration) -> Self {
        Self {
            memory: Memory::default(),
            delay: Arc::new(Mutex::new(delay)),
        }
    }

    /// Delay of answers from now on.
    pub(crate) fn delay(&self) -> Arc<Mutex<Duration>> {
        Arc::clone(&self.delay)
    }

    fn later(&self, answer: Answer, decisions: Decisions) -> Answer {
        let delay = *self.delay.lock().unwrap();
        Answer::Later(Box::pin(async move {
            tokio::time::sleep(delay).await;
            match answer {
                Answer::Done(allowed) => Ok(JointDecision { allowed, decisions }),
                _ => Err(BackendError::new("out of order")),
            }
        }))
    }
}

impl Backend for Remote {
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.memory.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], _: &mut [Decision]) -> Answer {
        let mut decisions = Decisions::rejected(charges.len());
        let answer = self.memory.acquire(charges, &mut decisions);
        self.later(answer, decisions)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        self.later(self.memory.settle(charges, delta), Decisions::rejected(0))
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        let (delay, done) = (*self.delay.lock().unwrap(), self.memory.reset(policy, key));
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            done.await
        })
    }
}

/// A backend that fails immediately.
pub(crate) struct Broken;

impl Backend for Broken {
    fn max_policies(&self) -> usize {
        1
    }

    fn register(&self, _: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        Ok(vec![PolicyId::new(0)])
    }

    fn acquire(&self, _: &[Charge<'_>], _: &mut [Decision]) -> Answer {
        Answer::Failed(BackendError::new("out of order"))
    }

    fn settle(&self, _: &[Charge<'_>], _: i64) -> Answer {
        Answer::Failed(BackendError::new("out of order"))
    }

    fn reset(&self, _: PolicyId, _: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        Box::pin(ready(Err(BackendError::new("out of order"))))
    }
}

/// Decides like [`Memory`], subject to its mood, and records the time of each request.
#[derive(Clone)]
pub(crate) struct Scripted {
    memory: Arc<Memory>,
    mood: Arc<Mutex<Mood>>,
    asked: Arc<Mutex<Vec<Instant>>>,
}

/// The reaction of a [`Scripted`] backend to a request. It charges in any case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mood {
    /// Decides immediately.
    AtOnce,
    /// Decides this much later.
    After(Duration),
    /// Fails immediately.
    Failing,
    /// Fails this much later.
    FailingAfter(Duration),
    /// Never answers.
    Silent,
}

impl Scripted {
    pub(crate) fn new(mood: Mood) -> Self {
        Self {
            memory: Arc::default(),
            mood: Arc::new(Mutex::new(mood)),
            asked: Arc::default(),
        }
    }

    pub(crate) fn is(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Number of decisions and corrections requested.
    pub(crate) fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// Times of these requests.
    pub(crate) fn times(&self) -> Vec<Instant> {
        self.asked.lock().unwrap().clone()
    }

    fn answer(&self, allowed: Answer, decisions: Decisions) -> Answer {
        self.asked.lock().unwrap().push(Instant::now());
        let mood = *self.mood.lock().unwrap();
        let Answer::Done(allowed) = allowed else {
            return allowed;
        };
        let (delay, verdict) = match mood {
            Mood::AtOnce => return Answer::Done(allowed),
            Mood::Failing => return Answer::Failed(BackendError::new("out of order")),
            Mood::After(delay) => (delay, Ok(JointDecision { allowed, decisions })),
            Mood::FailingAfter(delay) => (delay, Err(BackendError::new("out of order"))),
            Mood::Silent => return Answer::Later(Box::pin(std::future::pending())),
        };
        Answer::Later(Box::pin(async move {
            tokio::time::sleep(delay).await;
            verdict
        }))
    }
}

impl Backend for Scripted {
    fn max_policies(&self) -> usize {
        64
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.memory.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        let answer = self.memory.acquire(charges, out);
        self.answer(answer, out.iter().copied().collect())
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        let answer = self.memory.settle(charges, delta);
        self.answer(answer, Decisions::rejected(0))
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        self.memory.reset(policy, key)
    }
}

/// Allows every request and records its charge.
#[derive(Clone, Default)]
pub(crate) struct Noting {
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// The cost and the quota of a charge.
type Seen = (u64, Option<Quota>);

impl Noting {
    /// Charges since the last call.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

impl Backend for Noting {
    fn max_policies(&self) -> usize {
        9
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        Ok((0..).map(PolicyId::new).take(policies.len()).collect())
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        for (charge, out) in charges.iter().zip(out) {
            self.seen.lock().unwrap().push((charge.cost, charge.quota));
            let limit = charge.quota.map_or(7, |quota| quota.limit());
            *out = Decision::allow(
                charge.cost,
                limit,
                limit - charge.cost,
                Duration::from_secs(1),
            );
        }
        Answer::Done(true)
    }

    fn settle(&self, _: &[Charge<'_>], _: i64) -> Answer {
        Answer::Done(true)
    }

    fn reset(&self, _: PolicyId, _: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        Box::pin(ready(Ok(())))
    }
}
