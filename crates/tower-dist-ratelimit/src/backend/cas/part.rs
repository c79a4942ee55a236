use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{
    cells::{Cells, Job, Verb},
    failure::Failure,
    policy_set::PolicySet,
    store::CompareAndSwap,
};
use crate::backend::{
    Charge, JointDecision,
    toolkit::{PartAnswer, Tag, TransactionPart},
};

/// The charges of a request to one value.
pub(super) struct Part<C> {
    cells: Cells<C>,
    set: Arc<PolicySet>,
    tag: Tag,
    verb: Verb,
    /// Each charge with its index in the request, and the place of its policy in the set.
    charges: SmallVec<[(usize, usize, Charge<'static>); 1]>,
}

impl<C: CompareAndSwap> Part<C> {
    pub(super) fn new(cells: Cells<C>, set: Arc<PolicySet>, tag: Tag, verb: Verb) -> Self {
        Self {
            cells,
            set,
            tag,
            verb,
            charges: SmallVec::new(),
        }
    }

    pub(super) fn is_of(&self, set: &Arc<PolicySet>, tag: &Tag) -> bool {
        Arc::ptr_eq(&self.set, set) && self.tag == *tag
    }

    pub(super) fn add(&mut self, index: usize, place: usize, charge: Charge<'static>) {
        self.charges.push((index, place, charge));
    }

    pub(super) fn ask(
        &self,
    ) -> Result<impl Future<Output = Result<JointDecision, Failure>> + Send + use<C>, Failure> {
        let (answer, receiver) = oneshot::channel();
        let charges = self.charges.iter();
        let charges = charges.map(|&(_, place, charge)| (place, charge)).collect();
        let job = Job::new(&self.cells, self.verb, charges, answer)?;
        self.cells.push(&self.set, self.tag, job);
        Ok(async { receiver.await.unwrap_or_else(|_| Err(Failure::ended())) })
    }
}

impl<C: CompareAndSwap> TransactionPart for Part<C> {
    type Failure = Failure;

    fn send(&self) -> Result<PartAnswer<Self>, Failure> {
        Ok(Box::pin(self.ask()?))
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        self.charges.iter().map(|&(index, ..)| index)
    }

    fn refund(&self, granted: impl Iterator<Item = u64>) -> Self {
        let charges = self.charges.iter().zip(granted);
        let refunds = charges
            .map(|(&(index, place, charge), cost)| (index, place, Charge { cost, ..charge }));
        Self {
            cells: self.cells.clone(),
            set: Arc::clone(&self.set),
            tag: self.tag,
            // Of each charge at most its cost.
            verb: Verb::Settle(i64::MIN),
            charges: refunds.collect(),
        }
    }

    fn is_retryable(failure: &Failure) -> bool {
        failure.is_busy
    }
}
