//! A store for a fleet, some way off.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tower_dist_ratelimit::{
    BuildError, Decision, Decisions, Policy, Quota,
    backend::{
        Answer, Backend, BackendError, BoxFuture, Capabilities, Charge, JointDecision, Memory,
        PolicyId,
    },
};

/// [`Memory`] behind a network: what is sent arrives, also if nobody waits for the answer any more. Clones, and all who register a
/// policy of the same name, share it.
#[derive(Clone)]
pub(crate) struct Wan(Arc<Inner>);

struct Inner {
    memory: Memory,
    ids: Mutex<HashMap<String, PolicyId>>,
    way: Mutex<Way>,
    asked: Mutex<Vec<Asked>>,
}

/// What becomes of messages.
#[derive(Clone, Copy)]
enum Way {
    /// They take so long there, and so long back.
    Open(Duration, Duration),
    /// They are lost.
    Silent,
    /// They are not sent, which is said at once.
    Shut,
    /// They arrive, but not their answers; which is said at once, too.
    Deaf,
}

/// A question, as it was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) at: Instant,
    pub(crate) cost: u64,
    pub(crate) want: u64,
}

impl Wan {
    /// Each message takes so long, each way.
    pub(crate) fn away(delay: Duration) -> Self {
        Self(Arc::new(Inner {
            memory: Memory::default(),
            ids: Mutex::default(),
            way: Mutex::new(Way::Open(delay, delay)),
            asked: Mutex::default(),
        }))
    }

    /// From now on they take as long.
    pub(crate) fn is_away(&self, delay: Duration) {
        self.is_off(delay, delay);
    }

    /// From now on they take so long there, and so long back.
    pub(crate) fn is_off(&self, there: Duration, back: Duration) {
        self.goes(Way::Open(there, back));
    }

    /// From now on there is no answer.
    pub(crate) fn is_silent(&self) {
        self.goes(Way::Silent);
    }

    /// From now on whoever asks is told at once that it cannot be reached.
    pub(crate) fn is_shut(&self) {
        self.goes(Way::Shut);
    }

    /// From now on it does what it is asked for, and whoever asks is told that nobody knows.
    pub(crate) fn is_deaf(&self) {
        self.goes(Way::Deaf);
    }

    fn goes(&self, way: Way) {
        *self.0.way.lock().unwrap() = way;
    }

    /// What it was asked to decide.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.0.asked.lock().unwrap().clone()
    }

    /// How often.
    pub(crate) fn trips(&self) -> usize {
        self.0.asked.lock().unwrap().len()
    }

    /// Does it when the message has arrived, and says what came of it when the answer has.
    fn send<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Memory) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<BoxFuture<'static, Result<T, BackendError>>, BackendError> {
        let way = *self.0.way.lock().unwrap();
        if matches!(way, Way::Shut) {
            return Err(BackendError::new("it cannot be reached"));
        }
        let inner = Arc::clone(&self.0);
        let travel = tokio::spawn(async move {
            match way {
                Way::Open(there, back) => {
                    sleep(there).await;
                    let done = act(&inner.memory);
                    sleep(back).await;
                    done
                }
                Way::Deaf => {
                    act(&inner.memory)?;
                    Err(BackendError::new("the answer was lost"))
                }
                Way::Silent | Way::Shut => std::future::pending().await,
            }
        });
        Ok(Box::pin(async move { travel.await.unwrap() }))
    }
}

fn later(
    sent: Result<BoxFuture<'static, Result<JointDecision, BackendError>>, BackendError>,
) -> Answer {
    sent.map_or_else(Answer::Failed, Answer::Later)
}

/// A charge that travels.
struct Letter {
    policy: PolicyId,
    key: Vec<u8>,
    cost: u64,
    want: u64,
    quota: Option<Quota>,
}

impl Letter {
    fn of(charge: &Charge<'_>) -> Self {
        Self {
            policy: charge.policy,
            key: charge.key.to_vec(),
            cost: charge.cost,
            want: charge.up_to,
            quota: charge.quota,
        }
    }

    fn charge(&self) -> Charge<'_> {
        let charge = Charge::new(self.policy, &self.key, self.cost).up_to(self.want);
        self.quota.map_or(charge, |quota| charge.quota(quota))
    }
}

impl Backend for Wan {
    fn capabilities(&self) -> Capabilities {
        self.0.memory.capabilities()
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        let mut ids = self.0.ids.lock().unwrap();
        let known: Option<Vec<_>> = policies
            .iter()
            .map(|policy| ids.get(policy.name()).copied())
            .collect();
        if let Some(known) = known {
            return Ok(known);
        }
        let new = self.0.memory.register(policies)?;
        let named = policies.iter().map(|policy| policy.name().to_owned());
        ids.extend(named.zip(new.iter().copied()));
        Ok(new)
    }

    fn acquire(&self, charges: &[Charge<'_>], _: &mut [Decision]) -> Answer {
        let charge = charges[0];
        self.0.asked.lock().unwrap().push(Asked {
            at: Instant::now(),
            cost: charge.cost,
            want: charge.up_to,
        });
        let letters: Vec<Letter> = charges.iter().map(Letter::of).collect();
        later(self.send(move |memory| {
            let charges: Vec<_> = letters.iter().map(Letter::charge).collect();
            let mut decisions = Decisions::rejected(charges.len());
            match memory.acquire(&charges, &mut decisions) {
                Answer::Done(allowed) => Ok(JointDecision { allowed, decisions }),
                Answer::Failed(error) => Err(error),
                answer => panic!("{answer:?}"),
            }
        }))
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        let letters: Vec<Letter> = charges.iter().map(Letter::of).collect();
        later(self.send(move |memory| {
            let charges: Vec<_> = letters.iter().map(Letter::charge).collect();
            match memory.settle(&charges, delta) {
                Answer::Done(allowed) => Ok(JointDecision {
                    allowed,
                    decisions: Decisions::rejected(0),
                }),
                answer => panic!("{answer:?}"),
            }
        }))
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        let key = key.to_vec();
        let done = self.send(move |memory| Ok(memory.reset(policy, &key)));
        Box::pin(async move { done?.await?.await })
    }
}
