use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use super::{Limits, Outcome, Question, rule::usable};
use crate::{
    Quota,
    backend::{BackendError, Bounded, BoxFuture, JointDecision},
    ladder::Leave,
};

/// A pending decision: first the quota look-ups, if there are any, then the query of the backend. Each of the two has
/// the whole timeout, so a slow look-up takes no time from the backend.
pub(crate) enum Waiting {
    Quotas(Bounded<Vec<Found>>),
    Backend(Bounded<JointDecision>, Leave),
}

/// A quota from a look-up, with the index of its charge in the question.
pub(crate) type Found = (usize, Option<Quota>);

/// A pending quota look-up, with the index of its charge in the question.
pub(crate) type LookUp = (usize, BoxFuture<'static, Option<Quota>>);

impl Waiting {
    pub(super) fn for_quotas(timeout: Duration, lookups: Vec<LookUp>) -> Self {
        let all = async { Ok(all(lookups).await) };
        Self::Quotas(Bounded::new(timeout, Box::pin(all)))
    }

    pub(super) fn for_backend(
        timeout: Duration,
        answer: BoxFuture<'static, Result<JointDecision, BackendError>>,
        leave: Leave,
    ) -> Self {
        Self::Backend(Bounded::new(timeout, answer), leave)
    }

    /// Polls the decision and completes the question. Never returns [`Outcome::Later`].
    pub(crate) fn poll(
        &mut self,
        limits: &Limits,
        question: &mut Question,
        cx: &mut Context<'_>,
    ) -> Poll<Outcome<()>> {
        loop {
            let outcome = match self {
                Self::Quotas(found) => match ready!(Pin::new(found).poll(cx)) {
                    Ok(found) => {
                        for (place, quota) in found {
                            question.asked[place].quota = quota;
                        }
                        limits.ask(question)
                    }
                    Err(error) => {
                        limits.warn_of_late_quotas();
                        // This is no failure of the backend, which was not queried.
                        limits.undecided(question, error)
                    }
                },
                Self::Backend(verdict, leave) => {
                    let verdict = ready!(Pin::new(verdict).poll(cx));
                    limits.decided(question, verdict, *leave)
                }
            };
            match outcome {
                Outcome::Later(waiting) => *self = waiting,
                outcome => return Poll::Ready(outcome),
            }
        }
    }
}

/// Runs all look-ups concurrently.
async fn all(mut lookups: Vec<LookUp>) -> Vec<Found> {
    let mut found = Vec::with_capacity(lookups.len());
    poll_fn(|cx| {
        lookups.retain_mut(|(place, lookup)| match lookup.as_mut().poll(cx) {
            Poll::Ready(quota) => {
                found.push((*place, usable(quota)));
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
