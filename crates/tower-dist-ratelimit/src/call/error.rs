use std::{error::Error, fmt, sync::Arc, time::Duration};

use crate::{Decision, Reason, Rejection};

/// What comes of a call that fails: in front of the inner service, or in it.
#[derive(Debug)]
pub enum LimitError<E> {
    /// The limit rejected it. The inner service was not called.
    RateLimited(RateLimited),
    /// The inner service's own error.
    Inner(E),
}

impl<E> LimitError<E> {
    /// The inner service's error.
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::RateLimited(_) => None,
            Self::Inner(error) => Some(error),
        }
    }

    /// Either error in a box, for inner errors that are boxed already.
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
    /// This error, after layers above were told how to look into it.
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

/// A call that a limit rejected: why, by which policies, and until when.
#[derive(Clone, Debug)]
pub struct RateLimited(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    reason: Reason,
    retry_after: Option<Duration>,
    decided: Vec<(Arc<str>, Decision)>,
    #[cfg(feature = "attempt")]
    rejected: tower_attempt::Rejected,
}

impl RateLimited {
    pub(crate) fn new(rejection: &Rejection<'_>) -> Self {
        Self(Box::new(Parts {
            reason: rejection.reason(),
            retry_after: rejection.retry_after(),
            decided: rejection.decided().owned(),
            #[cfg(feature = "attempt")]
            rejected: tower_attempt::Rejected::new(rejection.retry_after()),
        }))
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.0.reason
    }

    /// The longest wait that a policy which rejected asks for, to the nanosecond; or how long until a store that fails is
    /// asked again. `None` when waiting does not help or nobody knows how long.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The name and the decision of each policy that was asked; those that would have let the call pass, too.
    pub fn decisions(&self) -> impl Iterator<Item = (&str, &Decision)> {
        let decided = self.0.decided.iter();
        decided.map(|(name, decision)| (&**name, decision))
    }

    /// The names of the policies that rejected. None if nobody has counted.
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
            Reason::Misconfigured => "rate-limit key missing: the server is not set up for it",
            Reason::Backend => "the rate limit cannot be decided",
            Reason::ReducedCapacity => "the rate limit is lower for now, and exceeded",
            Reason::QueueFull => "too many calls wait for the rate limit",
            Reason::TooLong => "the rate limit would have the call wait too long",
        })?;
        for (number, name) in self.violated().enumerate() {
            f.write_str(if number == 0 { " by " } else { ", " })?;
            write!(f, "{name:?}")?;
        }
        match self.0.retry_after {
            Some(wait) => write!(f, "; possible in {wait:?}"),
            None => Ok(()),
        }
    }
}

impl Error for RateLimited {
    /// With the feature `attempt`, a [`Rejected`](https://docs.rs/tower-attempt) that a retry layer above recognises.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        #[cfg(feature = "attempt")]
        return Some(&self.0.rejected);
        #[cfg(not(feature = "attempt"))]
        None
    }
}
