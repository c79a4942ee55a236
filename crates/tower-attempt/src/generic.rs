use std::time::Duration;

use crate::errors::chain;
use crate::protocol::sealed::Sealed;
use crate::{
    Attempt, AttemptOutcome, Budget, ByKey, ClassOf, Classify, EveryError, HedgeOverride, OneClass,
    Outcomes, PerKey, Protocol, Rejected, RequestRule, Requests, RetryOverride, Verdict,
};

/// The protocol of services whose requests are `Clone`. A rule of type `C` classifies the outcomes, and `K` names the
/// [class](crate::ClassOf) of a request for a hedge layer.
///
/// The error of an attempt may contain a [rejection](Rejected::find). If the rule would retry this error, the retry
/// waits at least as long as the rejection or the rule's verdict demands, whichever is longer. If neither demands a
/// wait, the verdict is fatal. For a hedge it is transient instead, so that the other attempts can still win.
///
/// # Default
///
/// [`EveryError`]: every request may be resent. An `Err` is transient, unless it is a rejection. An `Ok` of the
/// service is a success. An attempt that timed out has the verdict [`timeout`](Verdict::timeout).
#[derive(Clone, Copy, Debug, Default)]
pub struct Generic<C = EveryError, K = OneClass> {
    rule: C,
    key: K,
}

impl<C, K> Generic<C, K> {
    /// Uses `rule` to decide which requests may be resent, and to classify outcomes.
    #[must_use]
    pub fn rule<R>(self, rule: R) -> Generic<R, K> {
        let key = self.key;
        Generic { rule, key }
    }

    /// Groups requests into classes by a closure's key. A hedge layer with a percentile learns the latencies of each
    /// class separately. Requests with a key beyond the first 256 share one class.
    #[must_use]
    pub fn key<F>(self, key: F) -> Generic<C, ByKey<F>> {
        let (rule, key) = (self.rule, ByKey(key));
        Generic { rule, key }
    }
}

impl<C, K> Sealed for Generic<C, K> {}

impl<C, K> Protocol for Generic<C, K> {}

impl<C: RequestRule<Req>, K: ClassOf<Req>, Req: Clone> Requests<Req> for Generic<C, K> {
    type Context = C::Context;
    type Saved = Req;

    fn context(&self, request: &Req) -> C::Context {
        self.rule.context(request)
    }

    fn class<T: PerKey>(&self, request: &Req, table: &T) -> Option<T::Found> {
        self.key.find(request, table)
    }

    fn may_retry(&self, context: &C::Context) -> bool {
        self.rule.may_retry(context)
    }

    fn may_hedge(&self, context: &C::Context, _: &Req) -> bool {
        self.rule.may_hedge(context)
    }

    fn retry_override(&self, context: &C::Context) -> Option<RetryOverride> {
        self.rule.retry_override(context)
    }

    fn hedge_override(&self, context: &C::Context) -> Option<HedgeOverride> {
        self.rule.hedge_override(context)
    }

    fn budget<'a>(&'a self, context: &'a C::Context) -> Option<&'a Budget> {
        self.rule.budget(context)
    }

    fn save(&self, request: &mut Req) -> Option<Req> {
        Some(request.clone())
    }

    fn again(&self, saved: &Req, _: Attempt) -> Option<Req> {
        Some(saved.clone())
    }

    fn last(&self, saved: Req, _: Attempt) -> Option<Req> {
        Some(saved)
    }
}

impl<C, K, Req: Clone, Res, E: 'static> Outcomes<Req, Res, E> for Generic<C, K>
where
    C: Classify<Req, Res, E>,
    K: ClassOf<Req>,
{
    fn classify(
        &self,
        context: &C::Context,
        attempt: &Attempt,
        outcome: &Result<Res, E>,
    ) -> Verdict {
        let verdict = self.rule.classify(context, attempt, outcome);
        match verdict.is_retry() {
            true => Rejected::amend(verdict, attempt, outcome),
            false => verdict,
        }
    }

    fn describe<'a>(&self, outcome: &'a Result<Res, E>) -> AttemptOutcome<'a> {
        match outcome {
            Ok(_) => AttemptOutcome::Response {
                http_status: None,
                grpc_status: None,
            },
            Err(error) => AttemptOutcome::Error(chain(error).next()),
        }
    }

    fn timed_out(
        &self,
        context: &C::Context,
        attempt: &Attempt,
        answer: &Result<Res, E>,
    ) -> Verdict {
        self.rule.timed_out(context, attempt, answer)
    }

    fn backoff(
        &self,
        _: &C::Context,
        _: &Attempt,
        retry: u32,
        outcome: &Result<Res, E>,
    ) -> Option<Duration> {
        self.rule.backoff(retry, outcome)
    }
}
