mod apart;
mod arguments;
mod batch;
mod builder;
mod call;
mod cluster;
mod combiner;
mod error;
mod failure;
mod health;
mod key;
mod link;
mod rate;
mod reply;
mod route;
mod script;
mod sentinel;
mod target;
mod tls;
#[cfg(test)]
mod traces;
mod wire;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use smallvec::{SmallVec, smallvec};

pub use self::{builder::RedisBuilder, error::ConnectError};
use self::{
    apart::{Part, Sent},
    call::{Asked, Call, Verb},
    route::{Answers, Route},
    script::{Rule, Script},
};
use super::{Answer, Backend, BackendError, BoxFuture, Capabilities, Charge, PolicyId, Verdict};
use crate::{BuildError, Decision, Decisions, Policy};

/// The most policies in a set: as many as in [`Memory`](super::Memory).
const MAX_POLICIES: usize = 16;

#[derive(Clone)]
pub struct Redis {
    route: Route,
    prefix: Arc<str>,
    registry: Arc<RwLock<Registry>>,
}

/// What was registered, and the scripts for it.
#[derive(Debug, Default)]
struct Registry {
    rules: Vec<Arc<Rule>>,
    /// By the policies that are decided together: a set, or what of it applies to a request.
    scripts: HashMap<SmallVec<[PolicyId; 4]>, Arc<Script>>,
}

/// A verdict that comes later.
type Decided = BoxFuture<'static, Result<Verdict, BackendError>>;

impl Redis {
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url).connect().await
    }

    pub fn builder(url: &str) -> RedisBuilder {
        RedisBuilder::new(url)
    }

    fn new(route: Route, prefix: Arc<str>) -> Self {
        Self {
            route,
            prefix,
            registry: Arc::default(),
        }
    }

    fn script(&self, charges: &[Charge<'_>]) -> Result<Arc<Script>, BackendError> {
        let ids: SmallVec<[PolicyId; 4]> = charges.iter().map(|charge| charge.policy).collect();
        let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(script) = registry.scripts.get(&ids) {
            return Ok(Arc::clone(script));
        }
        drop(registry);
        // Some of a set, for a request to which the others do not apply.
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        let rules = ids.iter().map(|&id| registry.rule(id));
        let rules = rules.collect::<Result<_, _>>()?;
        let script = registry
            .scripts
            .entry(ids)
            .or_insert_with(|| Arc::new(Script::new(rules)));
        Ok(Arc::clone(script))
    }

    /// What is asked by these charges, of as many parts as there are servers to ask: nearly always one.
    fn parts(&self, charges: &[Charge<'_>], verb: Verb) -> Result<SmallVec<[Part; 1]>, BackendError> {
        let whole = self.call(charges, verb)?;
        let places = |whole: &Call| (0..whole.asks.len()).collect();
        let slots: SmallVec<[u16; 4]> = match self.route.is_cluster() {
            true => whole.slots().collect(),
            false => SmallVec::new(),
        };
        if slots.iter().all(|&slot| slot == slots[0]) {
            let places = places(&whole);
            return Ok(smallvec![Part {
                call: whole,
                places,
            }]);
        }
        let mut parts = SmallVec::new();
        for (first, slot) in slots.iter().enumerate() {
            if slots[..first].contains(slot) {
                continue;
            }
            let places: SmallVec<[usize; 4]> =
                (first..slots.len()).filter(|&place| slots[place] == *slot).collect();
            let charges: SmallVec<[Charge<'_>; 4]> =
                places.iter().map(|&place| charges[place]).collect();
            let call = self.call(&charges, verb)?;
            parts.push(Part { call, places });
        }
        Ok(parts)
    }

    fn call(&self, charges: &[Charge<'_>], verb: Verb) -> Result<Call, BackendError> {
        let script = self.script(charges)?;
        let asks = charges
            .iter()
            .zip(&script.rules)
            .map(|(charge, rule)| Asked::new(charge, rule, verb))
            .collect::<Result<_, _>>()?;
        Ok(Call {
            script,
            asks,
            settles: matches!(verb, Verb::Settle(_)),
        })
    }

    /// Sends the charges; the future has the verdict.
    fn decide(&self, charges: &[Charge<'_>]) -> Result<Decided, BackendError> {
        let mut parts = self.parts(charges, Verb::Acquire)?;
        let whole = if parts.len() == 1 { parts.pop() } else { None };
        if let Some(Part { call, .. }) = whole {
            let rules = charges.iter().zip(&call.script.rules);
            let limits: SmallVec<[u64; 2]> =
                rules.map(|(charge, rule)| rule.limit(charge.quota)).collect();
            let answers = self.route.send(call)?;
            return Ok(Box::pin(async move {
                Ok(reply::verdict(&answers.get().await?, &limits))
            }));
        }
        let limits = charges
            .iter()
            .map(|charge| Ok(self.rule(charge.policy)?.limit(charge.quota)))
            .collect::<Result<SmallVec<[u64; 4]>, BackendError>>()?;
        let (route, sent) = (self.route.clone(), Sent::new(&self.route, parts.into_vec()));
        Ok(Box::pin(async move { sent.verdict(&route, &limits).await }))
    }

    /// Sends corrections; the future says whether all are made.
    fn correct(&self, charges: &[Charge<'_>], delta: i64) -> Result<Decided, BackendError> {
        let parts = self.parts(charges, Verb::Settle(delta))?;
        let sent = parts
            .into_iter()
            .map(|part| self.route.send(part.call))
            .collect::<Result<SmallVec<[Answers; 2]>, _>>()?;
        Ok(Box::pin(async move {
            for answers in sent {
                answers.get().await?;
            }
            Ok(Verdict {
                allowed: true,
                decisions: Decisions::refused(0),
            })
        }))
    }

    fn rule(&self, policy: PolicyId) -> Result<Arc<Rule>, BackendError> {
        let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        registry.rule(policy)
    }
}

impl Registry {
    fn rule(&self, policy: PolicyId) -> Result<Arc<Rule>, BackendError> {
        usize::try_from(policy.number())
            .ok()
            .and_then(|number| self.rules.get(number))
            .map(Arc::clone)
            .ok_or_else(|| BackendError::new("this policy was not registered here"))
    }
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_policies: MAX_POLICIES,
        }
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        let rules = policies
            .iter()
            .map(|policy| Ok(Arc::new(Rule::new(&self.prefix, policy)?)))
            .collect::<Result<Vec<_>, BuildError>>()?;
        let mut registry = self
            .registry
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let first = registry.rules.len();
        let ids: Vec<_> = (first..first + rules.len())
            .map(|number| PolicyId::new(u32::try_from(number).unwrap_or(u32::MAX)))
            .collect();
        let script = Arc::new(Script::new(rules.clone()));
        registry
            .scripts
            .insert(ids.iter().copied().collect(), script);
        registry.rules.extend(rules);
        Ok(ids)
    }

    fn acquire(&self, charges: &[Charge<'_>], _: &mut [Decision]) -> Answer {
        if charges.is_empty() {
            return Answer::Done(true);
        }
        self.decide(charges).map_or_else(Answer::Failed, Answer::Later)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        if charges.is_empty() {
            return Answer::Done(true);
        }
        self.correct(charges, delta).map_or_else(Answer::Failed, Answer::Later)
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        let sent = self.rule(policy).and_then(|rule| {
            let (tag, mut name) = (key::tag(key), Vec::new());
            rule.keys.write(&tag, &mut name);
            Ok(self.route.delete(name, rule.keys.slot(&tag))?)
        });
        Box::pin(async move {
            sent?.get().await?;
            Ok(())
        })
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
