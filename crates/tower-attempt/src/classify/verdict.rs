use std::time::Duration;

/// The meaning of an attempt's outcome for retries and hedges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// A success: the caller receives the outcome, and the call may deposit into the budget.
    Success,
    /// A failure that a retry would not change, or that must not be retried.
    Fatal,
    /// A retryable failure.
    Retry {
        /// The kind of failure.
        reason: RetryReason,
        /// A hint about a retry, usually from the server.
        hint: Option<Hint>,
    },
    /// A retryable failure after which the request is not safe to resend.
    ///
    /// Over HTTP and gRPC, a layer replaces two verdicts by this one if a resend is not safe. One is a
    /// [`Retry`](Self::Retry), unless its hint is [`Hint::Never`]. The other is an [`Unprocessed`](Self::Unprocessed)
    /// that a user's rule returned, although the [standard rules](crate::Http) found no proof that the server did not
    /// process the request.
    Unsafe,
    /// A failure with proof that the server did not process the request, so that any request is safe to resend.
    ///
    /// In a retry layer, the first retry of a call after this verdict has no delay and takes no token from the budget.
    /// Use this verdict for failures that another connection probably avoids. If the next attempt may fail the same
    /// way, use [`not_sent`](Self::not_sent).
    ///
    /// Over HTTP and gRPC, only the standard rules can prove that the server did not process the request. If they find
    /// no proof, a layer replaces an `Unprocessed` that a user's rule returned. If a resend is safe, the new verdict is
    /// usually [`transient`](Self::transient). Otherwise it is [`Unsafe`](Self::Unsafe).
    Unprocessed,
}

/// A hint about a retry, usually from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// Minimum delay, such as from HTTP's `Retry-After` or a local rejection. The delay is a floor for the backoff.
    AtLeast(Duration),
    /// Exact delay, such as from gRPC's pushback. The delay usually replaces the backoff, which then restarts.
    Exactly(Duration),
    /// Forbids further attempts, as a negative or malformed pushback of gRPC does.
    Never,
}

/// The kind of a retryable failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryReason {
    /// A fault that is expected to pass.
    Transient,
    /// The server rejects excess load. After this failure, an exponential backoff usually starts from a longer base.
    Throttled,
    /// A timeout of the attempt expired, or the server reports a timeout.
    Timeout,
    /// The request was not sent. Usually no connection could be made, or a layer of this process
    /// [rejected](crate::Rejected) the request.
    ///
    /// Any such request is safe to resend. The retry backs off and draws on the budget, because the next attempt may
    /// fail the same way.
    NotSent,
}

impl Verdict {
    /// A transient fault, without a hint.
    #[must_use]
    pub const fn transient() -> Self {
        Self::retry(RetryReason::Transient)
    }

    /// A rejection of excess load, without a hint.
    #[must_use]
    pub const fn throttled() -> Self {
        Self::retry(RetryReason::Throttled)
    }

    /// A timeout, without a hint.
    #[must_use]
    pub const fn timeout() -> Self {
        Self::retry(RetryReason::Timeout)
    }

    /// A request that was not sent, without a hint.
    #[must_use]
    pub const fn not_sent() -> Self {
        Self::retry(RetryReason::NotSent)
    }

    const fn retry(reason: RetryReason) -> Self {
        Self::Retry { reason, hint: None }
    }

    /// Sets the minimum delay of a [`Retry`](Self::Retry), in place of an earlier hint. Any other verdict stays the
    /// same.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_attempt::Verdict;
    ///
    /// let verdict = Verdict::throttled().after(Duration::from_secs(2));
    /// assert!(verdict.is_retry());
    /// assert_eq!(Verdict::Fatal.after(Duration::from_secs(2)), Verdict::Fatal);
    /// ```
    #[must_use]
    pub const fn after(self, floor: Duration) -> Self {
        self.hinted(Hint::AtLeast(floor))
    }

    /// Sets the hint of a [`Retry`](Self::Retry), in place of an earlier hint. Any other verdict stays the same.
    #[must_use]
    pub const fn hinted(self, hint: Hint) -> Self {
        match self {
            Self::Retry { reason, .. } => Self::Retry {
                reason,
                hint: Some(hint),
            },
            other => other,
        }
    }

    pub(crate) const fn hint(&self) -> Option<Hint> {
        match self {
            Self::Retry { hint, .. } => *hint,
            _ => None,
        }
    }

    /// Returns the label for metrics and log lines: `success`, `fatal`, `unsafe`, `unprocessed`, or the reason of a
    /// retry (`transient`, `throttled`, `timeout`, `not_sent`).
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Fatal => "fatal",
            Self::Unsafe => "unsafe",
            Self::Unprocessed => "unprocessed",
            Self::Retry { reason, .. } => match reason {
                RetryReason::Transient => "transient",
                RetryReason::Throttled => "throttled",
                RetryReason::Timeout => "timeout",
                RetryReason::NotSent => "not_sent",
            },
        }
    }

    /// Whether the outcome is a retryable failure, even if a resend is unsafe or forbidden. A layer usually
    /// [records](crate::Budget::record_failure) such a failure on its budget.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        self.is_retry() || matches!(self, Self::Unsafe)
    }

    /// Whether the verdict claims that the server did not process the request.
    #[cfg(feature = "http")]
    pub(crate) const fn claims_proof(&self) -> bool {
        match self {
            Self::Retry { reason, .. } => matches!(reason, RetryReason::NotSent),
            other => matches!(other, Self::Unprocessed),
        }
    }

    /// Whether the verdict is [`Retry`](Self::Retry) or [`Unprocessed`](Self::Unprocessed).
    #[must_use]
    pub const fn is_retry(&self) -> bool {
        matches!(self, Self::Retry { .. } | Self::Unprocessed)
    }
}
