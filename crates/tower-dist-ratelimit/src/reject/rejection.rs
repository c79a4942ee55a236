use std::{fmt, time::Duration};

use http::StatusCode;

use super::Reason;
use crate::{
    Decided,
    limits::{Check, Rule},
};

/// The rejection of a request: the input of a [`RejectionResponse`](crate::RejectionResponse), and a part of
/// [`Event::Rejected`](crate::Event::Rejected) and [`Event::Shadowed`](crate::Event::Shadowed).
#[derive(Clone, Copy)]
pub struct Rejection<'a> {
    decided: Decided<'a>,
    reason: Reason,
}

impl<'a> Rejection<'a> {
    pub(crate) fn new(rules: &'a [Rule], check: &'a Check, reason: Reason) -> Self {
        let decided = Decided::new(rules, check);
        Self { decided, reason }
    }

    /// The reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The [hint](crate::key::KeyExtractor::hint) of the missing key, if the reason is
    /// [`Misconfigured`](Reason::Misconfigured) and the key has a hint.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        if self.reason != Reason::Misconfigured {
            return None;
        }
        let rule = self.decided.rules.get(self.decided.check.keyless)?;
        rule.policy.hint()
    }

    /// The HTTP status: 429 for a quota, 400 for a missing key, 500 for a misconfigured server, 503 for all
    /// other reasons.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.reason.status()
    }

    /// The longest wait of the rejecting policies, not rounded to seconds. For [`Reason::Backend`], the time
    /// until the next probe of the backend. `None` if waiting does not help or the wait is unknown.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.decided.check.retry_after()
    }

    /// The names of the policies that rejected the request, in the order in which they were added to the layer or
    /// limiter. Empty if no policy's quota caused the rejection, for example if the key is missing.
    pub fn violated(&self) -> impl Iterator<Item = &'a str> {
        self.rejected().map(|rule| &*rule.name)
    }

    /// The policies that rejected the request, without [hidden](crate::Policy::hidden) ones.
    pub(super) fn shown(&self) -> impl Iterator<Item = &'a Rule> {
        self.rejected().filter(|rule| !rule.policy.hidden)
    }

    /// The decisions of all policies that decided, including policies that allowed the request.
    #[must_use]
    pub fn decided(&self) -> Decided<'a> {
        self.decided
    }

    fn rejected(&self) -> impl Iterator<Item = &'a Rule> + use<'a> {
        let decided = self.decided.named();
        decided.filter_map(|(rule, decision)| decision.is_violated().then_some(rule))
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
