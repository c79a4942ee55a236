mod batch;
mod builder;
mod cell;
mod clock;
mod counting;
mod failure;
mod job;
mod key;
mod link;
mod parts;
mod pipe;
mod reply;
mod request;
mod rule;
mod target;
mod wire;

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use smallvec::{SmallVec, smallvec};
use tokio::{sync::oneshot, time::Instant};

pub use self::builder::MemcachedBuilder;
use self::{
    job::{Asked, Counting, Job, Swapping, Verb},
    link::Link,
    parts::Part,
    rule::{Counted, Set},
};
use super::{
    Answer, Backend, BackendError, BoxFuture, Capabilities, Charge, ConnectError, PolicyId,
    Verdict, tag::tag,
};
use crate::{BuildError, Decision, Policy};

/// The most policies in a set: as many as in [`Memory`](super::Memory).
const MAX_POLICIES: usize = 16;

/// Keeps limits in Memcached, for a whole fleet.
#[derive(Clone)]
pub struct Memcached {
    /// By their seeds.
    servers: Arc<[(u64, Link)]>,
    seeds: Arc<[u64]>,
    prefix: Arc<str>,
    registry: Arc<RwLock<Vec<Registered>>>,
}

/// One policy.
#[derive(Clone)]
struct Registered {
    kept: Kept,
    dynamic: bool,
}

/// Where a policy's states are.
#[derive(Clone)]
enum Kept {
    /// Each window is a counter.
    Counted(Arc<Counted>),
    /// One of a set, at this place in its items.
    InSet(Arc<Set>, usize),
}

/// An answer that comes later.
type Later = BoxFuture<'static, Result<Verdict, BackendError>>;

impl Memcached {
    /// Connects to one server or several; and keeps the connections from then on.
    ///
    /// # Default
    ///
    /// Those of [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// See [`ConnectError`]. A server that is not there yet is not waited for.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, on which the connections live.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url).connect().await
    }

    /// The same, with settings.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tower_dist_ratelimit::backend::Memcached;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let memcached = Memcached::builder("memcached://cache-1.internal,cache-2.internal")
    ///     .prefix("orders")
    ///     .connect_deadline(Duration::from_secs(2))
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(url: &str) -> MemcachedBuilder {
        MemcachedBuilder::new(url)
    }

    fn new(servers: Vec<(u64, Link)>, prefix: Arc<str>) -> Self {
        Self {
            seeds: servers.iter().map(|(seed, _)| *seed).collect(),
            servers: servers.into(),
            prefix,
            registry: Arc::default(),
        }
    }

    /// What is asked by these charges: as many parts as there are items, which nearly always is one.
    fn parts(
        &self,
        charges: &[Charge<'_>],
        verb: Verb,
    ) -> Result<SmallVec<[Part; 1]>, BackendError> {
        let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        let mut parts: SmallVec<[Part; 1]> = SmallVec::new();
        for (place, charge) in charges.iter().enumerate() {
            let policy = usize::try_from(charge.policy.number()).ok();
            let Some(policy) = policy.and_then(|number| registry.get(number)) else {
                return Err(BackendError::new("this policy was not registered here"));
            };
            if charge.quota.is_some() && !policy.dynamic {
                return Err(BackendError::new(
                    "a charge with a quota of its own, to a policy without dynamic_quotas",
                ));
            }
            let (tag, asked) = (tag(charge.key), Asked::of(charge));
            let joined = parts
                .iter_mut()
                .any(|part| part.join(&policy.kept, &tag, place, asked));
            if !joined {
                parts.push(Part::new(policy.kept.clone(), tag, verb, place, asked));
            }
        }
        Ok(parts)
    }

    /// Sends a part; the future has what is said about it.
    fn send(&self, part: &Part) -> Result<Later, BackendError> {
        let (_, link) = &self.servers[key::server(&self.seeds, &part.tag)];
        let (answer, receiver) = oneshot::channel();
        let job = match &part.kept {
            Kept::Counted(rule) => {
                let (_, _, asked) = part.asked[0];
                let rule = Arc::clone(rule);
                let job = Counting::new(rule, part.tag, part.verb, asked, answer);
                Job::Count(Box::new(job))
            }
            Kept::InSet(set, _) => Job::Swap(Swapping {
                set: Arc::clone(set),
                tag: part.tag,
                verb: part.verb,
                asked: part
                    .asked
                    .iter()
                    .map(|&(_, slot, asked)| (slot, asked))
                    .collect(),
                answer,
                since: Instant::now(),
            }),
        };
        link.send(job)?;
        Ok(Box::pin(Link::answer(receiver, link.health())))
    }

    fn ask(&self, charges: &[Charge<'_>], verb: Verb) -> Result<Later, BackendError> {
        let parts = self.parts(charges, verb)?;
        if let [part] = &parts[..] {
            return self.send(part);
        }
        Ok(Box::pin(parts::ask(
            self.clone(),
            parts.into_vec(),
            charges.len(),
            verb,
        )))
    }

    /// The policies of a set, each with its place.
    fn kept(&self, policies: &[Policy]) -> Result<SmallVec<[Kept; 1]>, BuildError> {
        if let [policy] = policies {
            let counted = Counted::new(&self.prefix, policy);
            let counted = counted.map_err(|error| error.in_policy(policy.name()))?;
            if let Some(counted) = counted {
                return Ok(smallvec![Kept::Counted(Arc::new(counted))]);
            }
        }
        let set = Arc::new(Set::new(&self.prefix, policies)?);
        let places = 0..policies.len();
        Ok(places
            .map(|place| Kept::InSet(Arc::clone(&set), place))
            .collect())
    }
}

impl Backend for Memcached {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_policies: MAX_POLICIES,
        }
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        let kept = self.kept(policies)?;
        let mut registry = self
            .registry
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let first = registry.len();
        let policies = policies.iter().zip(kept);
        registry.extend(policies.map(|(policy, kept)| Registered {
            kept,
            dynamic: policy.has_dynamic_quotas(),
        }));
        let numbers = first..registry.len();
        Ok(numbers
            .map(|number| PolicyId::new(u32::try_from(number).unwrap_or(u32::MAX)))
            .collect())
    }

    fn acquire(&self, charges: &[Charge<'_>], _: &mut [Decision]) -> Answer {
        if charges.is_empty() {
            return Answer::Done(true);
        }
        self.ask(charges, Verb::Acquire)
            .map_or_else(Answer::Failed, Answer::Later)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        if charges.is_empty() || delta == 0 {
            return Answer::Done(true);
        }
        self.ask(charges, Verb::Settle(delta))
            .map_or_else(Answer::Failed, Answer::Later)
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        let asked = self.ask(&[Charge::new(policy, key, 0)], Verb::Reset);
        Box::pin(async move {
            asked?.await?;
            Ok(())
        })
    }
}

impl fmt::Debug for Memcached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memcached")
            .field("prefix", &self.prefix)
            .field("servers", &self.servers.len())
            .finish_non_exhaustive()
    }
}
