//! Returns unused leased tokens when an instance shuts down.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use super::{Leasing, owner::Owner};
use crate::{
    backend::{Answer, Backend, BackendError, Bounded, JointDecision},
    terms::Terms,
};

impl Leasing {
    /// Returns the unused tokens of all leases to the backend. Holds back the tokens that a bucket gains
    /// in a lease time plus the backend timeout. Tokens of windows expire instead. The tokens cannot be
    /// spent here any longer when the messages are sent. Fails if one of the messages fails.
    pub(crate) async fn give_back(&self) -> Result<(), BackendError> {
        let now = self.shared.now();
        let sets = self.shared.table.sets().iter();
        let sent = sets
            .flat_map(|set| set.drain(now))
            .filter_map(|(owner, left)| {
                let spare = left.saturating_sub(self.gained(&owner)?);
                let delta = i64::try_from(spare).map_or(i64::MIN, |spare| -spare);
                let sent = || self.inner.settle(&[owner.charge(spare)], delta);
                (spare > 0).then(sent)
            });
        let (mut result, mut travelling) = (Ok(()), Vec::new());
        for answer in sent {
            match answer {
                Answer::Done(_) => {}
                Answer::Failed(error) => result = Err(error),
                Answer::Later(answer) => travelling.push(Bounded::new(self.deadline, answer)),
            }
        }
        let arrived = all(travelling).await;
        result.and(arrived)
    }

    /// Returns the most tokens that a key's bucket gains between the request of a lease and the arrival
    /// of its returned tokens. `None` for windows.
    fn gained(&self, owner: &Owner) -> Option<u64> {
        let lease = Duration::from_nanos(self.shared.lease);
        Terms::of(&self.terms, &owner.charge(0))?.gained(lease.saturating_add(self.deadline))
    }
}

/// Waits for all messages concurrently. Fails if one of them fails.
async fn all(mut travelling: Vec<Bounded<JointDecision>>) -> Result<(), BackendError> {
    let mut result = Ok(());
    poll_fn(|cx| {
        travelling.retain_mut(|answer| match Pin::new(answer).poll(cx) {
            Poll::Ready(Err(error)) => {
                result = Err(error);
                false
            }
            Poll::Ready(Ok(_)) => false,
            Poll::Pending => true,
        });
        match travelling.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    result
}
