use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tower_dist_ratelimit::{Algorithm, BuildError, Policy, algorithm::Words};

use super::{
    clock::{SKEW, SLACK, Time},
    counted::Counted,
    key::{Keys, layout},
    request::Ttl,
    slot::{self, At, Slot},
};

/// Where a policy's states are.
#[derive(Clone)]
pub(super) enum Kept {
    /// Each window is a counter.
    Counted(Arc<Counted>),
    /// One of a set, at this place in its items.
    InSet(Arc<Set>, usize),
}

impl Kept {
    /// The policies of a set, each with its place.
    ///
    /// # Errors
    ///
    /// A policy that cannot be kept.
    pub(super) fn new(prefix: &str, policies: &[Policy]) -> Result<Box<[Self]>, BuildError> {
        if let [policy] = policies {
            let counted = Counted::new(prefix, policy);
            let counted = counted.map_err(|error| error.in_policy(policy.name()))?;
            if let Some(counted) = counted {
                return Ok(Box::new([Self::Counted(Arc::new(counted))]));
            }
        }
        let set = Arc::new(Set::new(prefix, policies)?);
        let places = 0..policies.len();
        Ok(places
            .map(|place| Self::InSet(Arc::clone(&set), place))
            .collect())
    }
}

/// Policies that are decided together, whose states for one key are one item.
pub(super) struct Set {
    pub(super) keys: Keys,
    pub(super) slots: Vec<Box<dyn Slot>>,
    /// How long each has anything to say at most.
    spans: Vec<Duration>,
    /// How much longer than anything counts it is kept, in seconds.
    slack: u64,
}

impl Set {
    /// # Errors
    ///
    /// A policy that cannot be kept.
    pub(super) fn new(prefix: &str, policies: &[Policy]) -> Result<Self, BuildError> {
        let slots = policies
            .iter()
            .map(|policy| slot::slot(policy).map_err(|error| error.in_policy(policy.name())))
            .collect::<Result<_, _>>()?;
        let layouts: SmallVec<[String; 4]> = policies.iter().map(layout).collect();
        let keys = match policies {
            [policy] => Keys::new(prefix, &layouts[0], policy.name()),
            policies => {
                let parts = policies.iter().zip(&layouts);
                // With a space, so that it is hashed.
                let name: String = parts
                    .map(|(policy, layout)| {
                        format!("{} {} {layout} ", policy.name().len(), policy.name())
                    })
                    .collect();
                Keys::new(prefix, "s1", &name)
            }
        };
        let slack = policies.iter().map(slack).max().unwrap_or_default();
        let spans = policies.iter().map(span).collect();
        Ok(Self {
            keys,
            slots,
            spans,
            slack,
        })
    }

    /// How long an item with these states has something to say.
    pub(super) fn ttl(&self, states: &[Words], at: At, time: Time) -> Ttl {
        let slots = self.slots.iter().zip(&self.spans).zip(states);
        let lasts = slots.map(|((slot, span), words)| slot.lasts(words, at).min(*span));
        let longest = lasts.max().unwrap_or_default();
        let seconds = longest.as_secs().saturating_add(1 + SLACK + self.slack);
        Ttl::seconds(seconds, time.unix)
    }
}

/// Windows are forgotten when they have been over for a while by the clock of whoever wrote last; buckets when they are
/// full, which is after the same time by all clocks.
fn slack(policy: &Policy) -> u64 {
    match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue { .. } => 0,
        _ => policy.quota().window().min(SKEW).as_secs(),
    }
}

/// Windows have nothing to say when they have been over for as long as they are. Whoever finds one that begins in a far
/// future, as somebody's clock was wrong, does not keep it until then. Buckets drain as slowly as their quota says.
fn span(policy: &Policy) -> Duration {
    match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue { .. } => {
            Duration::MAX
        }
        _ => policy.quota().window().saturating_mul(2),
    }
}
