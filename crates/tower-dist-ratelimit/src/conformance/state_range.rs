use crate::{
    Decision,
    arithmetic::{State, saturating_nanos},
    backend::{Charge, PolicyId},
};

/// A charge of zero cost, to read a state. [`StateRange::settle`] also passes this charge, because [`State::settle`]
/// does not read the charge's cost.
const LOOK: Charge<'_> = Charge::new(PolicyId::new(0), &[], 0);

/// The range of a key's possible states. The backend decides each request at an unknown time between the call and the
/// answer.
#[derive(Clone, Debug)]
pub(super) struct StateRange {
    /// The state with the most free tokens: all tokens were taken as early as possible.
    most: State,
    /// The state with the fewest free tokens: all tokens were taken as late as possible.
    least: State,
    /// The time of the last change of `least`.
    changed: u64,
}

impl StateRange {
    pub(super) fn new(unused: State) -> Self {
        Self {
            most: unused.clone(),
            least: unused,
            changed: 0,
        }
    }

    /// Returns the strictest and the most generous decision that are possible from time `from` to time `to`.
    pub(super) fn decide(&self, from: u64, to: u64, charge: &Charge<'_>) -> [Decision; 2] {
        let from = from.max(self.changed);
        [
            self.least.decide(from, charge),
            self.most.decide(to, charge),
        ]
    }

    /// Returns the earliest and the latest time at which the `reset_after` of a look (a charge of zero cost) can end.
    /// The look is decided at an unknown time from `from` to `to`.
    pub(super) fn unused(&self, from: u64, to: u64) -> [u64; 2] {
        [(&self.most, from), (&self.least, to)]
            .map(|(state, now)| now + saturating_nanos(state.decide(now, &LOOK).reset_after))
    }

    /// Takes `delta` tokens, or returns `-delta` tokens if `delta` is negative, at an unknown time from `from` to
    /// `to`.
    pub(super) fn settle(&mut self, from: u64, to: u64, delta: i64) {
        if delta != 0 {
            self.most.settle(from, &LOOK, delta);
            self.least.settle(to, &LOOK, delta);
            self.changed = to;
        }
    }
}
