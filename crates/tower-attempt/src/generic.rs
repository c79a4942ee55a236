use std::time::Duration;

use crate::errors::chain;
use crate::protocol::sealed::Sealed;
use crate::{
    Attempt, AttemptOutcome, Budget, Classify, Deadline, EveryError, Outcomes, Protocol, Rejected,
    RequestRule, Requests, Verdict,
};

/// The protocol of services whose requests are `Clone`, where a rule of type `C` classifies the outcomes.
///
/// The rule does not decide on an error that is a [`Rejected`]: such a request was not sent. Where the rule would retry
/// it, the rejection's wait is the hint. Without a wait the rejection is fatal.
///
/// # Default
///
/// [`EveryError`]: every request may be resent, every `Err` is retried and no `Ok` is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Generic<C = EveryError>(C);

impl<C> Generic<C> {
    /// Classifies with `rule`.
    pub const fn new(rule: C) -> Self {
        Self(rule)
    }
}

impl<C> Sealed for Generic<C> {}

impl<C> Protocol for Generic<C> {}

impl<C: RequestRule<Req>, Req: Clone> Requests<Req> for Generic<C> {
    type Context = C::Context;
    type Saved = Req;

    fn context(&self, request: &Req) -> C::Context {
        self.0.context(request)
    }

    fn may_retry(&self, context: &C::Context) -> bool {
        self.0.may_retry(context)
    }

    fn may_hedge(&self, context: &C::Context, _: &Req) -> bool {
        self.0.may_hedge(context)
    }

    fn deadline(&self, context: &C::Context) -> Option<Deadline> {
        self.0.deadline(context)
    }

    fn budget<'a>(&'a self, context: &'a C::Context) -> Option<&'a Budget> {
        self.0.budget(context)
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

impl<C, Req: Clone, Res, E: 'static> Outcomes<Req, Res, E> for Generic<C>
where
    C: Classify<Req, Res, E>,
{
    fn classify(
        &self,
        context: &C::Context,
        attempt: &Attempt,
        outcome: &Result<Res, E>,
    ) -> Verdict {
        let verdict = self.0.classify(context, attempt, outcome);
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
        self.0.timed_out(context, attempt, answer)
    }

    fn backoff(
        &self,
        _: &C::Context,
        _: &Attempt,
        retry: u32,
        outcome: &Result<Res, E>,
    ) -> Option<Duration> {
        self.0.backoff(retry, outcome)
    }
}
