use std::{io::Write, sync::Arc};

use smallvec::SmallVec;
use tower_dist_ratelimit::{Quota, backend::Charge};

use super::{
    key::Tag,
    rate::{MOST_USED, Rate},
    rule::{Counts, Rule},
    script::Script,
};

/// One request to a script.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) script: Arc<Script>,
    /// The requests to the policies, in any order. A policy that does not apply has no ask.
    pub(super) asks: SmallVec<[KeyArgs; 1]>,
    /// The call is a correction, which has no decisions.
    pub(super) settles: bool,
}

impl Call {
    /// Returns the rule of each ask.
    pub(super) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.asks.iter().map(|ask| &*self.script.rules[ask.place])
    }

    /// Returns one item per policy of the script: the number of its ask, if it applies.
    pub(super) fn by_policy(&self) -> impl Iterator<Item = Option<usize>> {
        let places = 0..self.script.rules.len();
        places.map(|place| self.asks.iter().position(|ask| ask.place == place))
    }

    /// Returns whether all policies of the script apply.
    pub(super) fn is_whole(&self) -> bool {
        self.asks.len() == self.script.rules.len()
    }

    /// Returns the slot of the first key. All keys are in the same slot.
    pub(super) fn slot(&self) -> u16 {
        let mut asks = self.asks.iter().zip(self.rules());
        asks.next()
            .map_or(0, |(ask, rule)| rule.keys.slot(&ask.tag))
    }

    /// Returns the limits of the policies with these quotas.
    pub(super) fn limits(&self, quotas: impl Iterator<Item = Option<Quota>>) -> SmallVec<[u64; 2]> {
        let rules = self.rules().zip(quotas);
        rules.map(|(rule, quota)| rule.limit(quota)).collect()
    }
}

#[cfg(test)]
impl Call {
    /// A request to the only policy of a script.
    pub(super) fn to_one(script: &Arc<Script>, key: &str, cost: u64) -> Self {
        let charge = Charge::new(
            tower_dist_ratelimit::backend::PolicyId::new(0),
            key.as_bytes(),
            cost,
        );
        let tag = tower_dist_ratelimit::backend::toolkit::tag(charge.key);
        let ask = KeyArgs::new(&charge, tag, &script.rules[0], 0, Verb::Acquire);
        Self {
            script: Arc::clone(script),
            asks: SmallVec::from_iter([ask]),
            settles: false,
        }
    }
}

/// A key and a request to it as text for the scripts: `cost`, `cost want` or `sdelta 0`, then perhaps a quota. A
/// [run](super::run) is sent as `xcost times`, and a policy that does not apply as `-`.
#[derive(Clone, Debug)]
pub(super) struct KeyArgs {
    /// The place of its policy in the script.
    pub(super) place: usize,
    pub(super) tag: Tag,
    /// The granted tokens unless the answer names more.
    pub(super) cost: i64,
    pub(super) text: SmallVec<[u8; 16]>,
}

/// The purpose of a charge.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    Acquire,
    Settle(i64),
}

impl KeyArgs {
    pub(super) fn new(
        charge: &Charge<'_>,
        tag: Tag,
        rule: &Rule,
        place: usize,
        verb: Verb,
    ) -> Self {
        // A larger cost can never be paid, and would not be exact.
        let cost = charge.cost.min(MOST_USED + 1);
        let mut text = SmallVec::new();
        // Writing into memory does not fail.
        let _ = match verb {
            Verb::Acquire if charge.up_to <= cost && charge.quota.is_none() => {
                write!(text, "{cost}")
            }
            Verb::Acquire => write!(text, "{cost} {}", charge.up_to.min(MOST_USED)),
            Verb::Settle(delta) => {
                let most = i64::try_from(MOST_USED).unwrap_or(i64::MAX);
                let refund = i64::try_from(cost).unwrap_or(i64::MAX);
                write!(text, "s{} 0", delta.clamp(-refund, most))
            }
        };
        // With a quota of zero, a token is a century, and a correction would be stored in such units.
        let settles = matches!(verb, Verb::Settle(_));
        if let Some(quota) = charge.quota.filter(|quota| !settles || !quota.is_zero()) {
            let _ = match rule.counts {
                Counts::Tokens(_) => write!(text, " {}", rule.limit(Some(quota))),
                Counts::Units { max_wait } => {
                    let Rate { rate, token, burst } = Rate::nearest(quota).finer(max_wait);
                    write!(text, " {rate} {token} {burst}")
                }
            };
        }
        Self {
            place,
            tag,
            cost: i64::try_from(cost).unwrap_or(i64::MAX),
            text,
        }
    }
}
