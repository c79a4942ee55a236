//! What is left of leases when an instance is shut down.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use super::{Leasing, owner::Owner};
use crate::{
    algorithm::saturating_nanos,
    backend::{Answer, Backend, BackendError, Bounded, JointDecision},
};

impl Leasing {
    /// Gives back what is left of all leases, but for as much as the bucket gains in a lease time and until the message must have
    /// arrived. The tokens are dead before the store hears of them. Fails if one of the messages does.
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

    /// What a key's bucket gains, at most, between the asking for a lease and the arrival of what is given back.
    fn gained(&self, owner: &Owner) -> Option<u64> {
        let deadline = saturating_nanos(self.deadline);
        let terms = self.terms.iter().find(|terms| terms.id == owner.policy)?;
        terms.gained(owner, self.shared.lease.saturating_add(deadline))
    }
}

/// Waits for all at once; fails if one of them does.
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
