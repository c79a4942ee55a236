use std::fmt;
use std::sync::Arc;

use super::limited::LimitedBudget;

/// The permission to send one extra attempt, with the token that [`Budget::withdraw`](crate::Budget::withdraw) took.
///
/// A permit that is dropped without being [spent](Self::spend) returns its token to the budget. The permit of an
/// [unlimited](crate::Budget::unlimited) budget or of a [`grpc_throttle`](crate::Budget::grpc_throttle) holds no token.
///
/// A permit is owned and may be kept across an `await`. If a call panics or is cancelled, its unspent permit is
/// dropped.
#[must_use = "an unspent permit gives its token back when dropped"]
pub struct Permit(pub(super) Option<Arc<LimitedBudget>>);

impl Permit {
    /// Uses up the token. Call this when the extra attempt is sent.
    pub fn spend(mut self) {
        self.0 = None;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(limited) = &self.0 {
            limited.bucket.refund();
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit")
    }
}
