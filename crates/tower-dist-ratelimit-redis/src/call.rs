use std::{io::Write, sync::Arc};

use smallvec::SmallVec;
use tower_dist_ratelimit::{Quota, backend::Charge};

use super::{
    compiled_policy::{CompiledPolicy, CountUnit},
    key::Tag,
    rate::{MOST_USED, Rate},
    script::Script,
};

/// One request to a script.
#[derive(Clone, Debug)]
pub(super) struct ScriptCall {
    pub(super) script: Arc<Script>,
    /// One item per policy that applies to the request, in any order.
    pub(super) asks: SmallVec<[KeyArgs; 1]>,
    /// Whether the call is a correction. The answer to a correction has no decisions.
    pub(super) settles: bool,
}

impl ScriptCall {
    /// Returns the policies that apply, in the order of `asks`.
    pub(super) fn policies(&self) -> impl Iterator<Item = &CompiledPolicy> {
        self.asks
            .iter()
            .map(|ask| &*self.script.policies[ask.place])
    }

    /// Returns one item per policy of the script: the policy's index in `asks`, or `None` if the policy does not apply.
    pub(super) fn by_policy(&self) -> impl Iterator<Item = Option<usize>> {
        let places = 0..self.script.policies.len();
        places.map(|place| self.asks.iter().position(|ask| ask.place == place))
    }

    /// Returns whether all policies of the script apply.
    pub(super) fn is_whole(&self) -> bool {
        self.asks.len() == self.script.policies.len()
    }

    /// Returns the slot of the first key. In a Cluster, all keys of a call are in the same slot.
    pub(super) fn slot(&self) -> u16 {
        let mut asks = self.asks.iter().zip(self.policies());
        asks.next()
            .map_or(0, |(ask, policy)| policy.keys.slot(&ask.tag))
    }

    /// Returns the limits of the policies that apply. `quotas` has one item per such policy. `None` stands for the
    /// policy's own quota.
    pub(super) fn limits(&self, quotas: impl Iterator<Item = Option<Quota>>) -> SmallVec<[u64; 2]> {
        let policies = self.policies().zip(quotas);
        policies
            .map(|(policy, quota)| policy.limit(quota))
            .collect()
    }
}

#[cfg(test)]
impl ScriptCall {
    /// A request to the only policy of a script.
    pub(super) fn to_one(script: &Arc<Script>, key: &str, cost: u64) -> Self {
        let charge = Charge::new(
            tower_dist_ratelimit::backend::PolicyId::new(0),
            key.as_bytes(),
            cost,
        );
        let tag = tower_dist_ratelimit::backend::toolkit::tag(charge.key);
        let ask = KeyArgs::new(&charge, tag, &script.policies[0], 0, ChargeKind::Acquire);
        Self {
            script: Arc::clone(script),
            asks: SmallVec::from_iter([ask]),
            settles: false,
        }
    }
}

/// The arguments of a request for one policy: the key's tag, and the *ask*, which is the text of the request. Most asks
/// are a cost alone. Such a cost becomes a text only when the call is sent.
///
/// Examples: `5` is a cost, `5 20` a cost and the maximum grant, `s-3 0` a correction by -3 whose second number has no
/// meaning, and `x2 3` a [run](super::run) of three requests of cost 2. A dynamic quota can follow the first two
/// numbers of a request or correction, but not a run. `-` means that the policy does not apply.
#[derive(Clone, Debug)]
pub(super) struct KeyArgs {
    /// The index of the policy in the script.
    pub(super) place: usize,
    pub(super) tag: Tag,
    /// The cost in tokens. An allowed request gets this number of tokens unless the answer states another.
    pub(super) cost: i64,
    /// The request as text. Empty if the request is a cost alone, which becomes text later.
    pub(super) text: SmallVec<[u8; 16]>,
}

/// Whether a charge acquires tokens, or is a correction by the given number of tokens. The cost of the charge is the
/// maximum of a refund.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChargeKind {
    Acquire,
    Settle(i64),
}

impl KeyArgs {
    pub(super) fn new(
        charge: &Charge<'_>,
        tag: Tag,
        policy: &CompiledPolicy,
        place: usize,
        action: ChargeKind,
    ) -> Self {
        // A request of a cost above `MOST_USED` is rejected in any case, and no state has more tokens to refund. Lua's
        // numbers are exact only up to 2⁵³.
        let cost = charge.cost.min(MOST_USED + 1);
        let mut text = SmallVec::new();
        // Writing into memory does not fail.
        let _ = match action {
            ChargeKind::Acquire if charge.up_to <= cost && charge.quota.is_none() => Ok(()),
            ChargeKind::Acquire => write!(text, "{cost} {}", charge.up_to.min(MOST_USED)),
            ChargeKind::Settle(delta) => {
                let most = i64::try_from(MOST_USED).unwrap_or(i64::MAX);
                let refund = i64::try_from(cost).unwrap_or(i64::MAX);
                write!(text, "s{} 0", delta.clamp(-refund, most))
            }
        };
        // Under a quota of zero, a token of a bucket or queue takes a century to drain. A correction with such a quota
        // could put the quota in force for the key. So the correction is sent without the quota.
        let settles = matches!(action, ChargeKind::Settle(_));
        if let Some(quota) = charge.quota.filter(|quota| !settles || !quota.is_zero()) {
            let _ = match policy.counts {
                CountUnit::Tokens(_) => write!(text, " {}", policy.limit(Some(quota))),
                CountUnit::Units { max_wait } => {
                    let Rate { rate, token, burst } =
                        Rate::nearest(quota, max_wait).finer(max_wait);
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

    /// Returns whether both have the same ask, whatever their keys: the same text or, if neither has a text, the same
    /// cost.
    pub(super) fn asks_the_same(&self, other: &Self) -> bool {
        self.text == other.text && (self.cost == other.cost || !self.text.is_empty())
    }
}
