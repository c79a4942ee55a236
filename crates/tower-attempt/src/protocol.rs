use std::time::Duration;

use crate::{
    Attempt, AttemptOutcome, Budget, BuildError, Deadline, HedgeOverride, PerKey, RequestLine,
    RetryOverride, Verdict,
};

/// Seals [`Protocol`], because layers rely on it to decide which resend is safe.
pub(crate) mod sealed {
    /// Implemented by the protocols of this crate.
    pub trait Sealed {}
}

/// The protocol of a layer: [`Http`](crate::Http), [`Grpc`](crate::Grpc) or [`Generic`](crate::Generic).
///
/// The protocol decides which requests are safe to resend. With `Generic`, its rule decides, by default
/// [`EveryError`](crate::EveryError). The protocol also copies requests. `Http` and `Grpc` also read and write the data
/// that accompany a message, such as server hints, deadlines, attempt numbers and the marks of nested layers.
pub trait Protocol: sealed::Sealed {
    /// Checks the settings. The layers' `build()` calls this.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first invalid setting, its value and its bound.
    fn validate(&self) -> Result<(), BuildError> {
        Ok(())
    }

    /// Checks the settings of a protocol that a hedge layer uses.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`validate`](Self::validate). With gRPC, also returns an error if no setting declares
    /// methods idempotent.
    fn validate_hedging(&self) -> Result<(), BuildError> {
        self.validate()
    }
}

/// The part of a [`Protocol`] that handles requests.
///
/// A layer may no longer have the request when the outcome arrives, so it keeps a [`Context`](Self::Context) of each
/// call. The associated types are declared here and not in [`Outcomes`], so that they do not depend on the types of
/// response and error. Otherwise a lifetime in the error type could keep a layer's future from being `Send`.
pub trait Requests<Req>: Protocol {
    /// The facts that a layer keeps about a request in flight.
    type Context;
    /// The copy from which further attempts are made.
    type Saved;

    /// Changes the request if a setting demands it, for example adds an `Idempotency-Key`. A layer in
    /// [`Mode::On`](crate::Mode::On) calls this method before any other method that receives the request.
    fn prepare(&self, _request: &mut Req) {}

    /// Extracts the context from a request before the request is sent.
    fn context(&self, request: &Req) -> Self::Context;

    /// Copies what events report about a request.
    fn request_line(&self, _request: &Req) -> RequestLine {
        RequestLine::default()
    }

    /// Looks up the class of a request in `table`. Returns `None` if no user's rule names a class for the request, or
    /// if the table has no room for the class.
    fn class<T: PerKey>(&self, request: &Req, table: &T) -> Option<T::Found>;

    /// Returns `false` only if no outcome allows a retry of the request. If `false`, a retry layer keeps no copy of the
    /// request.
    fn may_retry(&self, context: &Self::Context) -> bool;

    /// Whether attempts of this request may be in flight concurrently. Called before the request is sent.
    fn may_hedge(&self, context: &Self::Context, request: &Req) -> bool;

    /// Returns this request's own settings for a retry layer. `None` means the layer's settings.
    fn retry_override(&self, context: &Self::Context) -> Option<RetryOverride>;

    /// Returns this request's own settings for a hedge layer. `None` means the layer's settings.
    fn hedge_override(&self, context: &Self::Context) -> Option<HedgeOverride>;

    /// Returns the instant after which the request's sender ignores responses, such as the end of a `grpc-timeout`. The
    /// instant can only shorten other deadlines.
    fn expiry(&self, _context: &Self::Context) -> Option<Deadline> {
        None
    }

    /// Returns the budget of this request's extra attempts. `None` means the layer's budget.
    fn budget<'a>(&'a self, context: &'a Self::Context) -> Option<&'a Budget>;

    /// Prepares a request for its first attempt, and returns the copy for further attempts. `None` means that the
    /// request cannot be resent.
    fn save(&self, request: &mut Req) -> Option<Self::Saved>;

    /// Makes a copy for `attempt`, and keeps `saved` for later attempts. `None` means that this attempt cannot be made.
    fn again(&self, saved: &Self::Saved, attempt: Attempt) -> Option<Req>;

    /// Makes the copy for the last attempt. `None` means that this attempt cannot be made.
    fn last(&self, saved: Self::Saved, attempt: Attempt) -> Option<Req> {
        self.again(&saved, attempt)
    }

    /// See [`ReplayableRequest::attempt_ended`](crate::ReplayableRequest::attempt_ended). A request that is copied as a
    /// whole is never interrupted.
    fn attempt_ended(&self, _saved: &Self::Saved, _attempt: Attempt, _is_over: bool) -> bool {
        false
    }

    /// Marks an extra attempt right before it is sent. `previous` is the number of earlier attempts. A retry layer does
    /// not count the earlier attempts that the server is known not to have processed.
    fn mark(
        &self,
        _context: &mut Self::Context,
        _attempt: Attempt,
        _previous: u32,
        _request: &mut Req,
    ) {
    }

    /// Whether a mark shows that this request is an extra attempt of a retry layer above. Retries of both layers would
    /// multiply.
    fn is_retried_above(&self, _context: &Self::Context) -> bool {
        false
    }
}

/// The part of a [`Protocol`] that handles outcomes.
pub trait Outcomes<Req, Res, E>: Requests<Req> {
    /// Classifies an outcome. If [`may_retry`](Requests::may_retry) is true, a verdict that
    /// [is a retry](Verdict::is_retry) also means that a resend is safe, unless its hint is
    /// [`Never`](crate::Hint::Never).
    fn classify(
        &self,
        context: &Self::Context,
        attempt: &Attempt,
        outcome: &Result<Res, E>,
    ) -> Verdict;

    /// Returns what events report about an outcome.
    fn describe<'a>(&self, outcome: &'a Result<Res, E>) -> AttemptOutcome<'a>;

    /// Classifies an attempt whose `attempt_timeout` expired. If no retry is scheduled, the caller receives `answer`.
    fn timed_out(
        &self,
        context: &Self::Context,
        attempt: &Attempt,
        answer: &Result<Res, E>,
    ) -> Verdict;

    /// Returns the delay that the user's rule chooses before the retry with the number `retry`, counted from 1. `None`
    /// means the layer's backoff.
    fn backoff(
        &self,
        context: &Self::Context,
        attempt: &Attempt,
        retry: u32,
        outcome: &Result<Res, E>,
    ) -> Option<Duration>;

    /// Whether a mark shows that a layer below has given up on this request. A retry layer calls this method with
    /// a failure of its inner service, before it [marks](Requests::mark) the next attempt.
    fn was_given_up(&self, _context: &mut Self::Context, _outcome: &Result<Res, E>) -> bool {
        false
    }

    /// Whether a mark shows that a layer below has given up on this failure and records failures on `budget`. Then the
    /// calling layer does not record this failure on `budget`.
    fn is_recorded(&self, _outcome: &Result<Res, E>, _budget: &Budget) -> bool {
        false
    }

    /// Marks this failure, if that is necessary and possible, so that layers above do not retry it. `budget` is the
    /// budget on which the calling layer records failures.
    fn give_up(&self, _context: &Self::Context, _outcome: &mut Result<Res, E>, _budget: &Budget) {}

    /// Inserts `info` into the extensions of a response, if the protocol is HTTP or gRPC.
    fn attach<T: Clone + Send + Sync + 'static>(&self, _outcome: &mut Result<Res, E>, _info: T) {}
}
