use std::{future::poll_fn, task::Poll, time::Duration};

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

/// Runs all look-ups concurrently.
async fn all(mut lookups: Vec<LookUp>) -> Vec<Found> {
    let mut found = Vec::with_capacity(lookups.len());
    poll_fn(|cx| {
        lookups.retain_mut(|(place, lookup)| match lookup.as_mut().poll(cx) {
            Poll::Ready(quota) => {
                found.push((*place, quota.and_then(Quota::usable)));
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
