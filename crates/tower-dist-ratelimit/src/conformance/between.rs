use crate::{
    Decision,
    arithmetic::{State, saturating_nanos},
    backend::{Charge, PolicyId},
};

/// A charge of nothing, for looks and corrections.
const LOOK: Charge<'_> = Charge::new(PolicyId::new(0), &[], 0);

/// The possible states of a key, if each request was decided at an unknown time between its question and its answer.
#[derive(Clone, Debug)]
pub(super) struct Between {
    /// All tokens were taken as early as possible, so most of them are back.
    most: State,
    /// All tokens were taken as late as possible.
    least: State,
    /// The time of the last change of `least`.
    changed: u64,
}

impl Between {
    pub(super) fn new(unused: State) -> Self {
        Self {
            most: unused.clone(),
            least: unused,
            changed: 0,
        }
    }

    /// Returns the decisions that grant the least and the most between these times.
    pub(super) fn decide(&self, from: u64, to: u64, charge: &Charge<'_>) -> [Decision; 2] {
        let from = from.max(self.changed);
        [
            self.least.decide(from, charge),
            self.most.decide(to, charge),
        ]
    }

    /// Returns the earliest and the latest time at which nothing counts.
    pub(super) fn unused(&self, from: u64, to: u64) -> [u64; 2] {
        [(&self.most, from), (&self.least, to)]
            .map(|(state, now)| now + saturating_nanos(state.decide(now, &LOOK).reset_after))
    }

    /// Takes `delta` tokens, or returns `-delta` tokens.
    pub(super) fn settle(&mut self, from: u64, to: u64, delta: i64) {
        if delta != 0 {
            self.most.settle(from, &LOOK, delta);
            self.least.settle(to, &LOOK, delta);
            self.changed = to;
        }
    }
}
