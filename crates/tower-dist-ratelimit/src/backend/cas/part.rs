use std::sync::Arc;

use super::{
    policy_set::PolicySet,
    store::CompareAndSwap,
    value_tasks::{Action, Charges, ValueTasks},
};
use crate::backend::{
    BackendError, Charge,
    toolkit::{PartAnswer, Tag, TransactionPart},
};

/// The part of one request that concerns one value.
pub(super) struct ValuePart<C> {
    pub(super) tasks: ValueTasks<C>,
    pub(super) set: Arc<PolicySet>,
    pub(super) tag: Tag,
    pub(super) action: Action,
    pub(super) charges: Charges,
}

impl<C: CompareAndSwap> TransactionPart for ValuePart<C> {
    type Failure = BackendError;

    fn send(&self) -> Result<PartAnswer<Self>, BackendError> {
        let charges = self.charges.clone();
        self.tasks.ask(&self.set, self.tag, self.action, charges)
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        self.charges.iter().map(|&(index, ..)| index)
    }

    fn refund(&self, granted: impl Iterator<Item = u64>) -> Self {
        let charges = self.charges.iter().zip(granted);
        let refunds = charges
            .map(|(&(index, place, charge), cost)| (index, place, Charge { cost, ..charge }));
        Self {
            tasks: self.tasks.clone(),
            set: Arc::clone(&self.set),
            tag: self.tag,
            // Refunds everything: a correction returns at most the cost of each charge.
            action: Action::Settle(i64::MIN),
            charges: refunds.collect(),
        }
    }

    fn is_retryable(failure: &BackendError) -> bool {
        failure.is_busy()
    }
}
