use std::{sync::Arc, time::Duration};

use super::{
    Shared,
    account::{Answered, Ask},
};
use crate::Decision;

/// A refill in flight. If it is dropped without an answer, the next refill starts an eighth of the
/// lease time later at the earliest.
pub(super) struct Asking {
    shared: Arc<Shared>,
    tag: u64,
    /// Zero after the answer.
    id: u64,
    asked: u64,
    cost: u64,
    want: u64,
    burst: u64,
}

impl Asking {
    pub(super) fn new(shared: &Arc<Shared>, ask: Ask, id: u64, extra: u64) -> Self {
        // A background refill pays for no request.
        let cost = if ask.ahead { 0 } else { ask.cost };
        Self {
            shared: Arc::clone(shared),
            tag: ask.tag,
            id,
            asked: ask.now,
            cost,
            want: cost.saturating_add(extra),
            burst: ask.burst,
        }
    }

    pub(super) fn want(&self) -> u64 {
        self.want
    }

    /// Books the extra tokens as a lease, and reduces `decision` to the request alone.
    pub(super) fn answered(mut self, decision: &mut Decision) {
        let answered = Answered {
            tag: self.tag,
            id: std::mem::take(&mut self.id),
            asked: self.asked,
            now: self.shared.now(),
            cost: self.cost,
            want: self.want,
        };
        let set = self.shared.table.set(self.tag);
        let again = set.answered(answered, decision, self.shared.lease);
        if decision.allowed {
            let extra = decision.granted.saturating_sub(self.cost);
            decision.granted -= extra;
            decision.remaining = decision.remaining.saturating_add(extra).min(self.burst);
        } else if let Some(wait) = &mut decision.retry_after {
            let pause = Duration::from_nanos(again.saturating_sub(answered.now));
            *wait = pause.max(*wait);
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.id != 0 {
            let again = self.shared.now().saturating_add(self.shared.lease / 8);
            let set = self.shared.table.set(self.tag);
            set.given_up(self.tag, self.id, again);
        }
    }
}
