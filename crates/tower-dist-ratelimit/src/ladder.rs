use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::backend::BackendError;

/// What happens to a request when the store fails, or does not answer within the
/// [deadline](crate::RateLimitLayerBuilder::backend_deadline).
///
/// [`Memory`](crate::backend::Memory) does neither. With the `tracing` feature there is one event when a store starts to
/// fail and one when it answers again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// The request passes, unlimited: a service that is up matters more than one that keeps its limits.
    Allow,
    /// The request is answered 503. The default: it never lets more through than the limits promise, which is what a
    /// limit on logins or on spending needs.
    #[default]
    Deny,
}

/// Whether the store answers, so that a change is told once and not with every request.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failing: AtomicBool,
}

impl Health {
    pub(crate) fn failed(&self, error: &BackendError) {
        let changed = !self.failing.swap(true, Relaxed);
        #[cfg(feature = "tracing")]
        if changed {
            tracing::warn!(error = %error, "rate limits are not being decided");
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (changed, error);
    }

    pub(crate) fn answered(&self) {
        // Read first: a swap on every request would have all cores write to one cache line.
        let changed = self.failing.load(Relaxed) && self.failing.swap(false, Relaxed);
        #[cfg(feature = "tracing")]
        if changed {
            tracing::info!("rate limits are being decided again");
        }
        #[cfg(not(feature = "tracing"))]
        let _ = changed;
    }
}
