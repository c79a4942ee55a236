use crate::model::{Expected, Model};

/// The possible states of a key, if each request was decided at an unknown time between its question and its answer.
#[derive(Clone, Debug)]
pub(super) struct Between {
    /// All tokens were taken as early as possible, so most of them are back.
    most: Model,
    /// All tokens were taken as late as possible.
    least: Model,
}

impl Between {
    pub(super) fn new(model: Model) -> Self {
        Self {
            most: model.clone(),
            least: model,
        }
    }

    /// Returns the least and the most that a decision between these times can grant.
    pub(super) fn decide(&self, from: u64, to: u64, cost: u64, want: u64) -> [Expected; 2] {
        let from = from.max(self.least.seen());
        let to = to.max(self.most.seen());
        [
            self.least.decide(from, cost, want),
            self.most.decide(to, cost, want),
        ]
    }

    /// Returns the earliest and the latest time at which nothing counts.
    pub(super) fn unused(&self, from: u64, to: u64) -> [u64; 2] {
        [
            self.most.unused_at(from.max(self.most.seen())),
            self.least.unused_at(to.max(self.least.seen())),
        ]
    }

    pub(super) fn take(&mut self, from: u64, to: u64, tokens: u64) {
        self.most.take(from.max(self.most.seen()), tokens);
        self.least.take(to.max(self.least.seen()), tokens);
    }

    pub(super) fn settle(&mut self, from: u64, to: u64, delta: i64) {
        self.most.settle(from.max(self.most.seen()), delta);
        self.least.settle(to.max(self.least.seen()), delta);
    }
}
