use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use super::{Limits, Outcome, Question, rule::usable};
use crate::{
    Quota,
    backend::{Bounded, BoxFuture, JointDecision},
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
}

impl Limits {
    /// Polls a pending decision and completes the question. Never returns [`Outcome::Later`].
    pub(crate) fn poll(&self, question: &mut Question, cx: &mut Context<'_>) -> Poll<Outcome> {
        loop {
            let outcome = match &mut question.waiting {
                Some(Waiting::Quotas(found)) => match ready!(Pin::new(found).poll(cx)) {
                    Ok(found) => {
                        for (place, quota) in found {
                            question.charges[place].quota = quota;
                        }
                        question.waiting = None;
                        self.ask(question)
                    }
                    Err(error) => {
                        self.warn_of_late_quotas();
                        // This is no failure of the backend, which was not queried.
                        self.undecided(question, error)
                    }
                },
                Some(Waiting::Backend(verdict, leave)) => {
                    let leave = *leave;
                    let verdict = ready!(Pin::new(verdict).poll(cx));
                    self.decided(question, verdict, leave)
                }
                None => unreachable!("a pending decision waits for something"),
            };
            if !matches!(outcome, Outcome::Later) {
                question.waiting = None;
                return Poll::Ready(outcome);
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
                found.push((*place, quota.and_then(usable)));
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
