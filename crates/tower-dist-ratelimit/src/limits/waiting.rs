use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use super::{Limits, Outcome, Question};
use crate::{
    Observer, Quota,
    backend::{BackendError, Bounded, BoxFuture, Verdict},
    ladder::Leave,
};

/// What a decision waits for: first for quotas that have to be looked up, if there are any, then for the store. One
/// deadline holds for both.
pub(crate) struct Waiting {
    end: Instant,
    stage: Stage,
}

enum Stage {
    Quotas(Bounded<Vec<Found>>),
    Store(Bounded<Verdict>, Leave),
}

/// A quota that was looked up, for the policy at this place of the question.
type Found = (usize, Option<Quota>);

/// A quota that is being looked up.
pub(crate) type LookUp = (usize, BoxFuture<'static, Option<Quota>>);

impl Waiting {
    pub(super) fn for_quotas(deadline: Duration, lookups: Vec<LookUp>) -> Self {
        let end = Instant::now() + deadline;
        let all = async { Ok(all(lookups).await) };
        Self {
            end,
            stage: Stage::Quotas(Bounded::until(end, deadline, Box::pin(all))),
        }
    }

    pub(super) fn for_store(
        end: Instant,
        deadline: Duration,
        answer: BoxFuture<'static, Result<Verdict, BackendError>>,
        leave: Leave,
    ) -> Self {
        Self {
            end,
            stage: Stage::Store(Bounded::until(end, deadline, answer), leave),
        }
    }

    /// Completes the question. Never [`Outcome::Later`].
    pub(crate) fn poll<O: Observer>(
        &mut self,
        limits: &Limits,
        question: &mut Question,
        observer: &O,
        cx: &mut Context<'_>,
    ) -> Poll<Outcome> {
        loop {
            let outcome = match &mut self.stage {
                Stage::Quotas(found) => match ready!(Pin::new(found).poll(cx)) {
                    Ok(found) => {
                        for (place, quota) in found {
                            question.asked[place].quota = quota;
                        }
                        limits.ask(question, observer, Some(self.end))
                    }
                    Err(error) => {
                        limits.warn_of_late_quotas();
                        // No failure of the store's: it was not asked.
                        limits.undecided(question, error, observer)
                    }
                },
                Stage::Store(verdict, leave) => {
                    let verdict = ready!(Pin::new(verdict).poll(cx));
                    limits.decided(question, verdict, *leave, observer)
                }
            };
            match outcome {
                Outcome::Later(waiting) => *self = waiting,
                outcome => return Poll::Ready(outcome),
            }
        }
    }
}

/// All at once: they wait for one another's answers in no order.
async fn all(mut lookups: Vec<LookUp>) -> Vec<Found> {
    let mut found = Vec::with_capacity(lookups.len());
    poll_fn(|cx| {
        lookups.retain_mut(|(place, lookup)| match lookup.as_mut().poll(cx) {
            Poll::Ready(quota) => {
                found.push((*place, super::usable(quota)));
                false
            }
            Poll::Pending => true,
        });
        if lookups.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    found
}
