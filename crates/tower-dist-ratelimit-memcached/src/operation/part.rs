//! Corrections through the toolkit's transaction.

use std::iter;

use tower_dist_ratelimit::backend::{
    BackendError,
    toolkit::{PartAnswer, TransactionPart},
};

use super::{Operation, OperationKind};

/// A correction is a transaction with one part. It continues if its caller drops the future, and is retried after a
/// [busy](BackendError::busy) error, such as a full queue.
impl TransactionPart for Operation {
    type Failure = BackendError;

    fn send(&self) -> Result<PartAnswer<Self>, BackendError> {
        Ok(Box::pin(self.clone().ask()?))
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        iter::once(0)
    }

    fn refund(&self, granted: impl Iterator<Item = u64>) -> Self {
        let mut refund = self.clone();
        refund.action = OperationKind::Settle(i64::MIN);
        refund.charge.cost = granted.sum();
        refund
    }

    fn is_retryable(failure: &BackendError) -> bool {
        failure.is_busy()
    }
}
