use std::{error::Error, fmt, sync::Arc, time::Duration};

use crate::{
    Decision, Reason, Rejection,
    limits::{Check, Rule},
};

/// The error of a limited call: a rejection, or an error of the inner service.
#[derive(Debug)]
pub enum LimitError<E> {
    /// The limit rejected the call. The inner service was not called.
    RateLimited(RateLimited),
    /// The error of the inner service.
    Inner(E),
}

impl<E> LimitError<E> {
    /// Returns the error of the inner service, or `None` for a rejection.
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::RateLimited(_) => None,
            Self::Inner(error) => Some(error),
        }
    }

    /// Returns the rejection or the inner error in a box, without boxing a boxed inner error again.
    pub fn into_boxed(self) -> Box<dyn Error + Send + Sync>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        match self {
            Self::RateLimited(rejected) => rejected.into(),
            Self::Inner(error) => error.into(),
        }
    }
}

impl<E: 'static> LimitError<E> {
    /// Returns the error unchanged. With the feature `attempt`, first registers its type, so that layers above can
    /// read the wrapped error.
    #[inline(never)]
    pub(crate) fn known(self) -> Self {
        #[cfg(feature = "attempt")]
        <Self as tower_attempt::WrapsError>::register();
        self
    }
}

#[cfg(feature = "attempt")]
impl<E: 'static> tower_attempt::WrapsError for LimitError<E> {
    fn wrapped(&self) -> &dyn std::any::Any {
        match self {
            Self::RateLimited(rejected) => &rejected.0.rejected,
            Self::Inner(error) => error,
        }
    }
}

impl<E: fmt::Display> fmt::Display for LimitError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RateLimited(rejected) => rejected.fmt(f),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: Error> Error for LimitError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::RateLimited(rejected) => rejected.source(),
            Self::Inner(error) => error.source(),
        }
    }
}

/// The rejection of a call: the reason, the decisions of the policies, and, if known, the time until a retry.
#[derive(Clone, Debug)]
pub struct RateLimited(Box<Details>);

#[derive(Clone, Debug)]
struct Details {
    reason: Reason,
    retry_after: Option<Duration>,
    decided: Vec<(Arc<str>, Decision)>,
    #[cfg(feature = "attempt")]
    rejected: tower_attempt::Rejected,
}

impl RateLimited {
    pub(crate) fn new(rules: &[Rule], check: &Check, reason: Reason) -> Self {
        let rejection = Rejection::new(rules, check, reason);
        Self(Box::new(Details {
            reason,
            retry_after: rejection.retry_after(),
            decided: rejection.decided().owned(),
            #[cfg(feature = "attempt")]
            rejected: tower_attempt::Rejected::new(rejection.retry_after()),
        }))
    }

    /// Returns the reason for the rejection.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.0.reason
    }

    /// Returns the longest wait of the rejecting policies, not rounded to seconds. For [`Reason::Backend`], returns the
    /// time until the next [probe](crate::FailureMode) of the backend. `None` if waiting does not help or the wait is
    /// unknown.
    ///
    /// In a [`Throttle`](crate::Throttle), the wait comes from the call's latest decision. The time since that decision
    /// is not subtracted. The requests that wait in the throttle's queues are not taken into account.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns the decisions on the call, each with the name of its policy. Includes decisions that allow the call.
    pub fn decisions(&self) -> impl Iterator<Item = (&str, &Decision)> {
        let decided = self.0.decided.iter();
        decided.map(|(name, decision)| (&**name, decision))
    }

    /// Returns the names of the policies that rejected the call. Empty if no policy's quota caused the rejection, for
    /// example if the key is missing.
    pub fn violated(&self) -> impl Iterator<Item = &str> {
        let rejected = self
            .decisions()
            .filter(|(_, decision)| decision.is_violated());
        rejected.map(|(name, _)| name)
    }
}

impl fmt::Display for RateLimited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.reason {
            Reason::Quota => "rate limit exceeded",
            Reason::MissingKey => "rate-limit key missing",
            Reason::Misconfigured => "rate-limit key missing: the server does not provide it",
            Reason::Backend => "rate limit unavailable",
            Reason::ReducedCapacity => "temporarily reduced rate limit exceeded",
            Reason::QueueFull => "rate-limit queue full",
            Reason::TooLong => "rate-limit wait too long",
        })?;
        for (number, name) in self.violated().enumerate() {
            f.write_str(if number == 0 { " for policy " } else { ", " })?;
            write!(f, "{name:?}")?;
        }
        match self.0.retry_after {
            Some(wait) => write!(f, "; retry after {wait:?}"),
            None => Ok(()),
        }
    }
}

impl Error for RateLimited {
    /// With the feature `attempt`, returns a [`Rejected`](https://docs.rs/tower-attempt) that a retry layer above
    /// recognises.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        #[cfg(feature = "attempt")]
        return Some(&self.0.rejected);
        #[cfg(not(feature = "attempt"))]
        None
    }
}
