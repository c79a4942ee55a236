use smallvec::SmallVec;
use tokio::time::Instant;

use super::{Check, Limits};
use crate::{
    Algorithm, Decision, Source,
    backend::{Answer, BackendError, Charge},
};

impl Limits {
    /// Changes charges by `delta` tokens. `source` selects the counter: this process's share for [`Source::Local`],
    /// none for [`Source::Allowed`] and [`Source::Denied`], and the backend for all others. Each charge comes with the
    /// index of its policy. If the circuit is open, the backend is not called.
    pub(crate) fn settle(
        &self,
        source: Source,
        charges: &[(usize, Charge<'_>)],
        delta: i64,
    ) -> Answer {
        match (source, self.guard.fallback()) {
            (Source::Local, Some(fallback)) => fallback.settle(charges, delta),
            // No counter of this limit made these decisions. If a late backend has charged the request, its charge
            // stays.
            (Source::Local | Source::Allowed | Source::Denied, _) => Answer::Done(true),
            _ if self.guard.open_for().is_some() => Answer::Failed(BackendError::circuit_open()),
            _ => {
                let charges = charges.iter().map(|&(_, charge)| charge);
                let charges: SmallVec<[Charge<'_>; 2]> = charges.collect();
                self.backend.settle(&charges, delta)
            }
        }
    }

    /// Changes a charge by `delta` tokens. If the backend answers later, the change usually continues in the
    /// background.
    pub(crate) fn correct(&self, source: Source, number: usize, charge: Charge<'_>, delta: i64) {
        if delta != 0 {
            let answer = self.settle(source, &[(number, charge)], delta);
            self.guard.finish(self.timeout, answer);
        }
    }

    /// Refunds the tokens of a charged request for which the inner service was not called. If the backend answers
    /// later, the refund usually continues in the background. `since` is the approximate time of the charge. If it is
    /// `None`, no window counts as ended.
    ///
    /// A place in a leaky queue stays taken. The requests behind it have their start times already, so after a refund
    /// the next request could start together with the last of them. Tokens of a window that has ended are not refunded,
    /// because the current window has not counted them.
    pub(crate) fn take_back(&self, check: &Check, since: Option<Instant>) {
        let decided = check.charges.iter().zip(check.decisions.iter());
        let is_over =
            |decision: &Decision| since.is_some_and(|then| then.elapsed() >= decision.reset_after);
        let taken = decided.filter(|(asked, decision)| {
            let comes_back = match self.rules[asked.rule].policy.algorithm() {
                Algorithm::LeakyQueue { .. } => false,
                algorithm => !(algorithm.has_windows() && is_over(decision)),
            };
            decision.granted > 0 && comes_back
        });
        for (asked, decision) in taken {
            let refund = i64::try_from(asked.cost).map_or(i64::MIN, |cost| -cost);
            let charge = asked.charge(check.keys());
            self.correct(decision.source, asked.rule, charge, refund);
        }
    }
}
