use std::fmt;
use std::sync::Arc;

use super::limited::Limited;

/// A token taken from a [`Budget`](crate::Budget): goes back when dropped, unless [spent](Self::spend).
///
/// It is owned and may be kept across an `await`; a call that is cancelled while it waits for its
/// extra attempt costs nothing, and neither does one that panics.
#[must_use = "an unspent permit gives its token back when dropped"]
pub struct Permit(Option<Arc<Limited>>);

impl Permit {
    /// Of a token of `limited`.
    pub(super) fn token(limited: &Arc<Limited>) -> Self {
        Self(Some(Arc::clone(limited)))
    }

    /// Of leave that took nothing.
    pub(super) const fn free() -> Self {
        Self(None)
    }

    /// Uses the token up: the extra attempt is sent.
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
