use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::{Attempt, AttemptKind, Verdict};

/// Texts of rejections by layers of tower 0.5 and tower-resilience 0.14. `*` stands for any text.
///
/// A comparison of error types would cost a dependency, and many types in tower-resilience are generic over the inner
/// error. A test compares the texts of tower with tower's real errors. The texts of tower-resilience are copies.
const TEXTS: [&str; 15] = [
    // tower: `LoadShed`, and a `Buffer` whose worker has ended.
    "service overloaded",
    "buffer's worker closed unexpectedly",
    "buffered service failed: *",
    // tower-resilience: the errors of its layers, and `ResilienceError`.
    "rate limit exceeded",
    "Rate limited",
    "Rate limited, retry after *",
    "circuit is open; call not permitted",
    "Circuit breaker is open",
    "Circuit breaker '*' is open",
    "bulkhead is full: *",
    "Bulkhead full (*)",
    "timeout waiting for bulkhead permit",
    "bulkhead semaphore is closed",
    "instance '*' is ejected by outlier detection",
    "Instance '*' ejected by outlier detection",
];

/// The error of a layer of this process that rejected a request, so that the request was not sent.
///
/// A retry layer above waits at least `retry_after` before it resends the request, and may resend a request that is not
/// idempotent. If `retry_after` is longer than the layer's `max_retry_after`, the caller receives the rejection.
///
/// Without `retry_after`, the caller of the retry layer receives the rejection. But if the verdict of a user's rule
/// names a wait (see [`Verdict::after`]), the layer may resend the request. Over HTTP and gRPC, it then resends only
/// idempotent requests.
///
/// A layer that rejects requests returns this error itself, or as the [`source`](Error::source) of its own error. If
/// the layer's own error is not boxed, its type must usually implement [`WrapsError`](crate::WrapsError) and be
/// [registered](crate::WrapsError::register).
///
/// ```
/// use std::time::Duration;
/// use tower_attempt::Rejected;
///
/// let boxed: Box<dyn std::error::Error + Send + Sync> = Rejected::new(Some(Duration::from_secs(1))).into();
/// let found = Rejected::find(&boxed).unwrap();
/// assert_eq!(found.retry_after(), Some(Duration::from_secs(1)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected {
    retry_after: Option<Duration>,
}

impl Rejected {
    /// A rejection by a layer that may accept the request once `retry_after` has passed. `None` means that the layer
    /// does not know the time, or never accepts the request.
    #[must_use]
    pub const fn new(retry_after: Option<Duration>) -> Self {
        Self { retry_after }
    }

    /// Returns the time until the layer may accept the request; `None` if the rejection names no time.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    pub(crate) fn of_one(error: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(rejected) = error.downcast_ref::<Self>() {
            return Some(*rejected);
        }
        let text = error.to_string();
        let is_known = TEXTS.iter().any(|pattern| matches(&text, pattern));
        is_known.then_some(Self::new(None))
    }

    pub(crate) fn verdict(self, attempt: &Attempt) -> Verdict {
        match self.retry_after {
            Some(wait) => Verdict::not_sent().after(wait),
            // A rejected hedge was never sent. It must not end a call whose other attempts are in flight.
            None if attempt.kind() == AttemptKind::Hedge => Verdict::transient(),
            None => Verdict::Fatal,
        }
    }
}

fn matches(text: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => {
            let rest = text.strip_prefix(start);
            rest.is_some_and(|rest| rest.ends_with(end))
        }
        None => text == pattern,
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request was rejected before it was sent")?;
        match self.retry_after {
            Some(wait) => write!(f, "; retry after {wait:?}"),
            None => Ok(()),
        }
    }
}

impl Error for Rejected {}

#[cfg(test)]
mod tests;
