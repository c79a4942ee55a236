use std::time::Duration;

/// What an attempt's outcome means for a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// An answer to pass on. A retry layer's budget grows with it.
    Success,
    /// A failure that a repeat would not mend, or that is not safe to repeat.
    Fatal,
    /// A failure that may pass.
    Retry {
        /// What kind of failure.
        reason: RetryReason,
        /// What the server says of a repeat.
        hint: Option<Hint>,
    },
    /// A failure that may pass, of a request that is not safe to resend. The protocol makes this of a
    /// [`Retry`](Self::Retry).
    Unsafe,
    /// A failure with proof that the server did not process the request, so that a repeat is safe
    /// whatever the request does: a transparent retry. A call's first one is immediate and free.
    ///
    /// For failures that another connection probably does not meet. Where the next attempt is as likely to
    /// fail, the verdict is [`not_sent`](Self::not_sent).
    Unprocessed,
}

/// What a server says of a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// Not before this much time has passed (HTTP's `Retry-After`, or a local rejection's): a floor for the backoff.
    AtLeast(Duration),
    /// After this much time, whatever the backoff says, which then starts anew (gRPC's pushback).
    Exactly(Duration),
    /// Not at all (gRPC's negative pushback).
    Never,
}

/// What kind of failure a retry answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryReason {
    /// A fault that is expected to pass.
    Transient,
    /// The server asks for less load; the backoff starts from a longer base.
    Throttled,
    /// The answer did not come in time.
    Timeout,
    /// The request was not sent: no connection could be made, or a layer of this process
    /// [rejected](crate::Rejected) it. A resend is safe whatever the request does, but it backs off and takes a
    /// token, because the next attempt may fail the same way.
    NotSent,
}

impl Verdict {
    /// A fault that is expected to pass, without a hint.
    #[must_use]
    pub const fn transient() -> Self {
        Self::retry(RetryReason::Transient)
    }

    /// A demand for less load, without a hint.
    #[must_use]
    pub const fn throttled() -> Self {
        Self::retry(RetryReason::Throttled)
    }

    /// An answer that did not come in time.
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

    /// Adds a floor for the delay to a retry; on any other verdict it changes nothing.
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

    /// Adds the server's hint to a retry; on any other verdict it changes nothing.
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

    /// The label in metrics and log lines: `success`, `fatal`, `unsafe`, `unprocessed`, or the reason of a retry
    /// (`transient`, `throttled`, `timeout`, `not_sent`).
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

    /// Whether the server failed, for a [throttle](crate::Budget::grpc_throttle) that counts failures.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        self.is_retry() || matches!(self, Self::Unsafe)
    }

    /// Whether it says that the server did not process the request.
    #[cfg(feature = "http")]
    pub(crate) const fn claims_proof(&self) -> bool {
        match self {
            Self::Retry { reason, .. } => matches!(reason, RetryReason::NotSent),
            other => matches!(other, Self::Unprocessed),
        }
    }

    /// Whether a retry is wanted.
    #[must_use]
    pub const fn is_retry(&self) -> bool {
        matches!(self, Self::Retry { .. } | Self::Unprocessed)
    }
}
