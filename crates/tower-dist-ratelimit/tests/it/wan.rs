//! A remote backend of a fleet.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tower_dist_ratelimit::{
    BuildError, Decision, Decisions, Policy, Quota,
    backend::{Answer, Backend, BackendError, BoxFuture, Charge, JointDecision, Memory, PolicyId},
};

/// [`Memory`] behind a network. Sent messages arrive even if the caller stops waiting. Clones share the memory, and so
/// do policies of the same name.
#[derive(Clone)]
pub(crate) struct Wan(Arc<Inner>);

struct Inner {
    memory: Memory,
    ids: Mutex<HashMap<String, PolicyId>>,
    way: Mutex<Way>,
    asked: Mutex<Vec<Asked>>,
}

/// The fate of messages.
#[derive(Clone, Copy)]
enum Way {
    /// Delivered with these delays, to the backend and back.
    Open(Duration, Duration),
    /// Lost.
    Silent,
    /// Not sent; the caller gets an error immediately.
    Shut,
    /// Delivered, but the answer is lost and the caller gets an error immediately.
    Deaf,
}

/// A request, as sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) at: Instant,
    pub(crate) cost: u64,
    pub(crate) want: u64,
}

impl Wan {
    /// A backend with this one-way delay.
    pub(crate) fn away(delay: Duration) -> Self {
        Self(Arc::new(Inner {
            memory: Memory::default(),
            ids: Mutex::default(),
            way: Mutex::new(Way::Open(delay, delay)),
            asked: Mutex::default(),
        }))
    }

    /// Sets the one-way delay of later messages.
    pub(crate) fn is_away(&self, delay: Duration) {
        self.is_off(delay, delay);
    }

    /// Sets the delays of later messages, to the backend and back.
    pub(crate) fn is_off(&self, there: Duration, back: Duration) {
        self.goes(Way::Open(there, back));
    }

    /// Loses all later messages.
    pub(crate) fn is_silent(&self) {
        self.goes(Way::Silent);
    }

    /// Fails all later requests immediately, without sending them.
    pub(crate) fn is_shut(&self) {
        self.goes(Way::Shut);
    }

    /// Executes all later requests, but fails them immediately at the caller.
    pub(crate) fn is_deaf(&self) {
        self.goes(Way::Deaf);
    }

    fn goes(&self, way: Way) {
        *self.0.way.lock().unwrap() = way;
    }

    /// The decisions requested so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.0.asked.lock().unwrap().clone()
    }

    /// Number of decisions requested.
    pub(crate) fn trips(&self) -> usize {
        self.0.asked.lock().unwrap().len()
    }

    /// Applies the operation when the message arrives, and returns its result when the answer arrives.
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

/// A charge in transit.
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
