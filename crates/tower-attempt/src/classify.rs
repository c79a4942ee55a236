mod verdict;

use std::time::Duration;

pub use self::verdict::{Hint, RetryReason, Verdict};
use crate::{Attempt, Budget, HedgeOverride, RetryOverride};

/// Decides whether a request of your own type may be resent.
///
/// The layer may no longer have the request when the outcome arrives. So the rule extracts a [`Context`](Self::Context)
/// before the request is sent, and [`Classify`] receives that context with the outcome.
pub trait RequestRule<Req> {
    /// The facts that the rule keeps about a request in flight.
    type Context;

    /// Extracts the context from a request before the request is sent.
    fn context(&self, request: &Req) -> Self::Context;

    /// Whether a retry layer may resend this request. If not, the layer keeps no copy of the request.
    ///
    /// # Default
    ///
    /// `true`.
    fn may_retry(&self, _context: &Self::Context) -> bool {
        true
    }

    /// Whether attempts of this request may be in flight concurrently.
    ///
    /// # Default
    ///
    /// The same as [`may_retry`](Self::may_retry).
    fn may_hedge(&self, context: &Self::Context) -> bool {
        self.may_retry(context)
    }

    /// Returns this request's own settings for a retry layer, such as a deadline.
    ///
    /// # Default
    ///
    /// `None`: the layer's settings.
    fn retry_override(&self, _context: &Self::Context) -> Option<RetryOverride> {
        None
    }

    /// Returns this request's own settings for a hedge layer, such as a deadline.
    ///
    /// # Default
    ///
    /// `None`: the layer's settings.
    fn hedge_override(&self, _context: &Self::Context) -> Option<HedgeOverride> {
        None
    }

    /// Returns the budget of this request's extra attempts.
    ///
    /// # Default
    ///
    /// `None`: the layer's budget.
    ///
    /// ```
    /// use tower_attempt::{Attempt, Budget, Budgets, Classify, RequestRule, Verdict};
    ///
    /// /// Each shard has a budget of its own.
    /// #[derive(Clone)]
    /// struct PerShard(Budgets);
    ///
    /// struct Query { shard: u16 }
    ///
    /// impl RequestRule<Query> for PerShard {
    ///     type Context = Budget;
    ///
    ///     fn context(&self, query: &Query) -> Budget {
    ///         self.0.get(&query.shard)
    ///     }
    ///
    ///     fn budget<'a>(&'a self, context: &'a Budget) -> Option<&'a Budget> {
    ///         Some(context)
    ///     }
    /// }
    ///
    /// let rule = PerShard(Budgets::new(Budget::ratio(0.2).per_second(0).burst(1)));
    /// let (one, other) = (rule.context(&Query { shard: 1 }), rule.context(&Query { shard: 2 }));
    /// one.withdraw().unwrap().spend();
    /// assert!(one.withdraw().is_none());
    /// assert!(other.withdraw().is_some());
    /// ```
    fn budget<'a>(&'a self, _context: &'a Self::Context) -> Option<&'a Budget> {
        None
    }
}

/// Classifies outcomes.
///
/// A closure can classify outcomes, too: see `retry_if` and `classify_fn` of a layer's builder.
///
/// ```
/// use tower_attempt::{Attempt, Classify, RequestRule, Verdict};
///
/// enum Query {
///     Read(String),
///     Write(String),
/// }
///
/// /// Only reads are safe to resend.
/// struct Reads;
///
/// impl RequestRule<Query> for Reads {
///     type Context = bool;
///
///     fn context(&self, query: &Query) -> bool {
///         matches!(query, Query::Read(_))
///     }
///
///     fn may_retry(&self, is_read: &bool) -> bool {
///         *is_read
///     }
/// }
///
/// impl<Res> Classify<Query, Res, &str> for Reads {
///     fn classify(&self, _: &bool, _: &Attempt, outcome: &Result<Res, &str>) -> Verdict {
///         match outcome {
///             Ok(_) => Verdict::Success,
///             Err(error) if *error == "busy" => Verdict::throttled(),
///             Err(_) => Verdict::transient(),
///         }
///     }
/// }
///
/// let is_read = Reads.context(&Query::Write("x = 1".to_owned()));
/// assert!(!Reads.may_retry(&is_read));
/// let is_read = Reads.context(&Query::Read("x".to_owned()));
/// assert!(Reads.may_retry(&is_read));
/// let verdict = Reads.classify(&true, &Attempt::PRIMARY, &Err::<(), _>("busy"));
/// assert_eq!(verdict, Verdict::throttled());
/// ```
pub trait Classify<Req, Res, E>: RequestRule<Req> {
    /// Classifies an outcome.
    fn classify(
        &self,
        context: &Self::Context,
        attempt: &Attempt,
        outcome: &Result<Res, E>,
    ) -> Verdict;

    /// Classifies an attempt that exceeded the `attempt_timeout` of a retry layer, or of the request's
    /// [`RetryOverride`]. If no retry is scheduled, the caller receives `answer`.
    ///
    /// # Default
    ///
    /// Calls [`classify`](Self::classify), as for any other outcome.
    fn timed_out(
        &self,
        context: &Self::Context,
        attempt: &Attempt,
        answer: &Result<Res, E>,
    ) -> Verdict {
        self.classify(context, attempt, answer)
    }

    /// Returns the delay after this outcome, before the retry with the number `retry`, counted from 1. Only a retry
    /// layer calls this method.
    ///
    /// A minimum delay that the verdict names remains a lower bound. A call's first retry after
    /// [`Verdict::Unprocessed`] is immediate and has no number. A retry after a [`Hint::Exactly`] has no number, and
    /// the numbers of later retries start from 1 again.
    ///
    /// # Default
    ///
    /// `None`: the layer's backoff.
    fn backoff(&self, _retry: u32, _outcome: &Result<Res, E>) -> Option<Duration> {
        None
    }
}

/// Classifies every `Err` as transient, every `Ok` of the service as a success, and every timeout of an attempt as a
/// timeout. Every request may be resent.
#[derive(Clone, Copy, Debug, Default)]
pub struct EveryError;

impl<Req> RequestRule<Req> for EveryError {
    type Context = ();

    fn context(&self, _: &Req) {}
}

impl<Req, Res, E> Classify<Req, Res, E> for EveryError {
    fn classify(&self, (): &(), _: &Attempt, outcome: &Result<Res, E>) -> Verdict {
        match outcome {
            Ok(_) => Verdict::Success,
            Err(_) => Verdict::transient(),
        }
    }

    fn timed_out(&self, (): &(), _: &Attempt, _: &Result<Res, E>) -> Verdict {
        Verdict::timeout()
    }
}

/// Classifies outcomes with a closure. Every request may be resent.
#[derive(Clone, Copy, Debug)]
pub struct ClassifyFn<F>(pub F);

impl<F, Req> RequestRule<Req> for ClassifyFn<F> {
    type Context = ();

    fn context(&self, _: &Req) {}
}

impl<F, Req, Res, E> Classify<Req, Res, E> for ClassifyFn<F>
where
    F: Fn(&Result<Res, E>, &Attempt) -> Verdict,
{
    fn classify(&self, (): &(), attempt: &Attempt, outcome: &Result<Res, E>) -> Verdict {
        self.0(outcome, attempt)
    }
}

/// Classifies the outcomes for which a closure returns `true` as transient. Of the other outcomes, an `Ok` is a success
/// and an `Err` is fatal. Every request may be resent.
#[derive(Clone, Copy, Debug)]
pub struct RetryIf<F>(pub F);

impl<F, Req> RequestRule<Req> for RetryIf<F> {
    type Context = ();

    fn context(&self, _: &Req) {}
}

impl<F, Req, Res, E> Classify<Req, Res, E> for RetryIf<F>
where
    F: Fn(&Result<Res, E>) -> bool,
{
    fn classify(&self, (): &(), _: &Attempt, outcome: &Result<Res, E>) -> Verdict {
        match outcome {
            _ if self.0(outcome) => Verdict::transient(),
            Ok(_) => Verdict::Success,
            Err(_) => Verdict::Fatal,
        }
    }
}
