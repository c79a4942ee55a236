use std::time::Duration;

use smallvec::SmallVec;
use tower_dist_ratelimit::{Decision, backend::JointDecision};

/// A script's answer about one policy: the remaining tokens, the time to reset, the granted tokens (-1 for a rejection)
/// and the wait (-1 if waiting does not help). Times are in microseconds.
///
/// A [`Row`](super::rows::Row) is one request, or a run of equal requests. For a row of one request, the script sends
/// only the first two numbers if it grants exactly the cost without a wait. Otherwise it sends all four, and encodes
/// the first number `n` as `-1 - n`. For a row of several requests, it sends one number, from which
/// [`Run`](super::run::Run) computes the answers. For a correction, it sends no number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PolicyReply {
    pub(super) remaining: i64,
    pub(super) reset: i64,
    pub(super) granted: i64,
    pub(super) wait: i64,
}

/// A script's answer to one request: one item per policy that applies, in the order of
/// [`asks`](super::call::ScriptCall::asks). Empty for a correction.
pub(super) type Replies = SmallVec<[PolicyReply; 1]>;

/// Parses one policy's answer to a request of this cost.
pub(super) fn parse_reply(
    numbers: &mut impl Iterator<Item = i64>,
    cost: i64,
) -> Option<PolicyReply> {
    let (first, reset) = (numbers.next()?, numbers.next()?);
    if first >= 0 {
        return Some(PolicyReply {
            remaining: first,
            reset,
            granted: cost,
            wait: 0,
        });
    }
    Some(PolicyReply {
        remaining: -1 - first,
        reset,
        granted: numbers.next()?,
        wait: numbers.next()?,
    })
}

/// Returns the decisions on one request. `limits` are the limits of its policies.
pub(super) fn verdict(replies: &[PolicyReply], limits: &[u64]) -> JointDecision {
    let decisions = replies.iter().zip(limits);
    JointDecision {
        allowed: replies.iter().all(|reply| reply.granted >= 0),
        decisions: decisions
            .map(|(reply, &limit)| reply.decision(limit))
            .collect(),
    }
}

impl PolicyReply {
    pub(super) fn decision(&self, limit: u64) -> Decision {
        let micros = |value: i64| u64::try_from(value).ok().map(Duration::from_micros);
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        let reset = micros(self.reset).unwrap_or_default();
        if self.granted < 0 {
            return Decision::reject(limit, count(self.remaining), micros(self.wait), reset);
        }
        let mut decision =
            Decision::allow(count(self.granted), limit, count(self.remaining), reset);
        decision.delay = micros(self.wait).unwrap_or_default();
        decision
    }
}
