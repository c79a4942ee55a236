use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{Check, Limits};
use crate::{
    Algorithm, Decision, Source,
    backend::{Answer, Backend, BackendError, Charge, Timeout},
    background::Background,
    failover::OnFailure,
};

/// Maximum number of corrections in flight per layer: about the number of concurrent requests of a busy instance.
const MAX_TRAVELLING: usize = 1024;

/// Corrections of charges in flight to a backend. They run in the background, because a dropped response cannot wait
/// for them. Dropping the layer cancels them.
#[derive(Default)]
pub(crate) struct Corrections {
    travelling: Background,
    lost: Arc<AtomicU64>,
}

impl Limits {
    /// Returns the number of lost corrections. Corrections in flight are not lost.
    pub(crate) fn lost_corrections(&self) -> u64 {
        self.corrections.lost.load(Relaxed)
    }

    /// Changes charges by `delta` tokens. `source` is the source of their decisions: the change goes to this process's share or
    /// to the backend. Each charge comes with the index of its policy. If the circuit is open, the backend is not called.
    pub(crate) fn settle(
        &self,
        source: Source,
        charges: &[(usize, Charge<'_>)],
        delta: i64,
    ) -> Answer {
        match (source, &self.failover.on_failure) {
            (Source::Local, OnFailure::Local(fallback)) => {
                let mut charges = charges.iter();
                charges
                    .try_for_each(|&(number, charge)| fallback.settle(number, charge, delta))
                    .map_or_else(Answer::Failed, |()| Answer::Done(true))
            }
            // These sources have charged nothing.
            (Source::Local | Source::Allowed | Source::Denied, _) => Answer::Done(true),
            _ if self.failover.open_for().is_some() => Answer::Failed(BackendError::circuit_open()),
            _ => {
                let charges = charges.iter().map(|&(_, charge)| charge);
                let charges: SmallVec<[Charge<'_>; 2]> = charges.collect();
                self.backend.settle(&charges, delta)
            }
        }
    }

    /// Changes a charge by `delta` tokens. If the backend answers later, the change continues in the background.
    pub(crate) fn correct(&self, source: Source, number: usize, charge: Charge<'_>, delta: i64) {
        if delta == 0 {
            return;
        }
        let Corrections { travelling, lost } = &self.corrections;
        let answer = match self.settle(source, &[(number, charge)], delta) {
            Answer::Done(_) => return,
            Answer::Later(answer) => answer,
            Answer::Failed(_) => {
                lost.fetch_add(1, Relaxed);
                return;
            }
        };
        let (timeout, late) = (self.timeout, Arc::clone(lost));
        let travel = async move {
            if Timeout::new(timeout, answer).await.is_err() {
                late.fetch_add(1, Relaxed);
            }
        };
        if !travelling.spawn(MAX_TRAVELLING, Box::pin(travel)) {
            lost.fetch_add(1, Relaxed);
        }
    }

    /// Refunds the tokens of a charged request that the inner service did not get, in the background if the backend
    /// answers later. `since` is the time of the charge; `None` means a moment ago.
    ///
    /// A place in a leaky queue stays taken. The requests behind it have their start times already, so after a refund
    /// the next request would start together with the last of them. Tokens of a window that has ended are not refunded,
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
