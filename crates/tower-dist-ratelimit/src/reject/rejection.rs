use std::{fmt, time::Duration};

use http::StatusCode;

use crate::{
    Decided, Decision,
    limits::{Limits, Question, Rule},
};

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A policy has no tokens for it.
    Quota,
    /// It has no key, and a policy [rejects](crate::MissingKey::Reject) such requests.
    MissingKey,
    /// It has no key, although every request should have one: the server is not set up for the policy's key. The
    /// [hint](Rejection::hint) says what it lacks.
    Misconfigured,
    /// The store has not decided, and the layer [denies](crate::FailureMode::Closed) in that case.
    Backend,
    /// The store has not decided, and this process has no tokens for it in its
    /// [share](crate::FailureMode::Local).
    ReducedCapacity,
    /// It would have to wait, and there are as many requests waiting as may. Only in a [`Throttle`](crate::Throttle).
    QueueFull,
    /// Its turn would come later than it may wait. Only in a [`Throttle`](crate::Throttle).
    TooLong,
}

impl Reason {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Quota => StatusCode::TOO_MANY_REQUESTS,
            Self::MissingKey => StatusCode::BAD_REQUEST,
            Self::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Backend | Self::ReducedCapacity | Self::QueueFull | Self::TooLong => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}

/// A request that is rejected, as [`RejectionResponse`](crate::RejectionResponse) gets to see it.
pub struct Rejection<'a> {
    limits: &'a Limits,
    question: &'a Question,
    reason: Reason,
}

impl<'a> Rejection<'a> {
    pub(crate) fn new(limits: &'a Limits, question: &'a Question, reason: Reason) -> Self {
        Self {
            limits,
            question,
            reason,
        }
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The [hint](crate::key::KeyExtractor::hint) of the missing key, if the reason is
    /// [`Misconfigured`](Reason::Misconfigured).
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        if self.reason != Reason::Misconfigured {
            return None;
        }
        let rule = self.limits.rules.get(self.question.keyless)?;
        rule.policy.hint()
    }

    /// The status that says so: 429 by quota, 400 without a key, 500 without a key that the server should find, 503 when the
    /// store fails.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.reason.status()
    }

    /// The longest wait that a policy which rejected asks for, to the nanosecond; or how long until a store that fails is
    /// asked again. `None` when waiting does not help or nobody knows how long.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.question.retry_after()
    }

    /// The names of the policies that rejected, in the order in which the layer has them. None if nobody has counted.
    pub fn violated(&self) -> impl Iterator<Item = &'a str> {
        self.rejected().map(|(rule, _)| &*rule.name)
    }

    /// The policy that rejected, if it is the only one.
    pub(super) fn only_violated(&self) -> Option<&'a Rule> {
        let mut rejected = self.rejected();
        let (rule, _) = rejected.next()?;
        rejected.next().is_none().then_some(rule)
    }

    /// The same names, as JSON strings.
    pub(crate) fn violated_quoted(&self) -> impl Iterator<Item = &'a str> {
        self.rejected().map(|(rule, _)| rule.quoted.as_str())
    }

    /// All the decisions; those of policies that would have let the request pass, too.
    #[must_use]
    pub fn decided(&self) -> Decided<'a> {
        Decided::new(self.limits, self.question)
    }

    fn rejected(&self) -> impl Iterator<Item = (&'a Rule, &'a Decision)> + use<'a> {
        self.decided()
            .named()
            .filter(|(_, decision)| decision.is_violated())
    }
}

impl fmt::Debug for Rejection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejection")
            .field("reason", &self.reason())
            .field("violated", &self.violated().collect::<Vec<_>>())
            .field("retry_after", &self.retry_after())
            .finish()
    }
}
