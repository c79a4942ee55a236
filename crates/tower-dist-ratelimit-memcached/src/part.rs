use std::{iter, sync::Arc};

use tokio::sync::oneshot;
use tower_dist_ratelimit::backend::{
    Charge, JointDecision,
    toolkit::{PartAnswer, Tag, TransactionPart},
};

use super::{
    counted::Counted,
    failure::Failure,
    job::{Counting, Job, Verb},
    link::Link,
};

/// An operation on a counter.
pub(super) struct Part {
    pub(super) link: Link,
    pub(super) rule: Arc<Counted>,
    pub(super) tag: Tag,
    pub(super) verb: Verb,
    pub(super) charge: Charge<'static>,
}

impl Part {
    pub(super) fn ask(
        &self,
    ) -> Result<impl Future<Output = Result<JointDecision, Failure>> + Send + use<>, Failure> {
        let (answer, receiver) = oneshot::channel();
        let rule = Arc::clone(&self.rule);
        let job = Counting::new(rule, self.tag, self.verb, self.charge, answer);
        self.link.send(Job::Count(Box::new(job)))?;
        Ok(Link::answer(receiver, self.link.health()))
    }
}

/// A correction is a transaction of one part: it outlives its caller, and is sent again if its queue is full.
impl TransactionPart for Part {
    type Failure = Failure;

    fn send(&self) -> Result<PartAnswer<Self>, Failure> {
        Ok(Box::pin(self.ask()?))
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        iter::once(0)
    }

    fn refund(&self, granted: impl Iterator<Item = u64>) -> Self {
        let mut charge = self.charge;
        charge.cost = granted.sum();
        Self {
            link: self.link.clone(),
            rule: Arc::clone(&self.rule),
            verb: Verb::Settle(i64::MIN),
            charge,
            ..*self
        }
    }

    fn is_retryable(failure: &Failure) -> bool {
        failure.is_busy()
    }
}
