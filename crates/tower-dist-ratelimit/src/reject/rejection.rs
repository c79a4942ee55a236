use std::{fmt, time::Duration};

use http::StatusCode;

use super::Reason;
use crate::{
    Decided, Decision,
    limits::{Question, Rule},
};

/// A request that is rejected, as [`RejectionResponse`](crate::RejectionResponse) gets to see it.
#[derive(Clone, Copy)]
pub struct Rejection<'a> {
    rules: &'a [Rule],
    question: &'a Question,
    reason: Reason,
}

impl<'a> Rejection<'a> {
    pub(crate) fn new(rules: &'a [Rule], question: &'a Question, reason: Reason) -> Self {
        Self {
            rules,
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
        let rule = self.rules.get(self.question.keyless)?;
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

    /// The policies that rejected, without [hidden](crate::Policy::hidden) ones.
    pub(super) fn shown(&self) -> impl Iterator<Item = &'a Rule> {
        let rules = self.rejected().map(|(rule, _)| rule);
        rules.filter(|rule| !rule.policy.hidden)
    }

    /// All the decisions; those of policies that would have let the request pass, too.
    #[must_use]
    pub fn decided(&self) -> Decided<'a> {
        Decided::new(self.rules, self.question)
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
