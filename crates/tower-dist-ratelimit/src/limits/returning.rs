use super::{Limits, Question};
use crate::{
    Reason, Source,
    ladder::{Instead, Leave},
};

/// Requests to a process that has lately returned to the backend.
impl Limits {
    /// Reports tokens that this process has admitted alone to the backend. While other processes may still decide alone, charges
    /// the request to this process's share, too.
    pub(super) fn recover(&self, question: &mut Question, leave: Leave) -> Result<Leave, Reason> {
        let Some((fallback, is_shared)) = self.ladder.recovering() else {
            return Ok(leave);
        };
        if let Leave::Probe(_) = leave {
            return Ok(leave);
        }
        for asked in &question.asked {
            let charge = asked.charge(question.keys());
            let unreported = fallback.take_unreported(asked.rule, charge);
            let unreported = i64::try_from(unreported).unwrap_or(i64::MAX);
            self.correct(Source::Backend, asked.rule, charge, unreported);
        }
        if !is_shared {
            return Ok(leave);
        }
        match question.ask_instead(fallback) {
            Ok(true) => Ok(Leave::Shared),
            Ok(false) => Err(Reason::ReducedCapacity),
            Err(_) => Ok(leave),
        }
    }

    /// Puts back the charge to the share, for a request that the backend has not admitted.
    pub(super) fn release(&self, question: &Question, leave: Leave) {
        if let (Leave::Shared, Instead::Decide(fallback)) = (leave, &self.ladder.instead) {
            for asked in &question.asked {
                fallback.release(asked.rule, asked.charge(question.keys()));
            }
        }
    }
}
