use std::any::Any;
use std::fmt;

use http::uri::Authority;
use http::{HeaderMap, Method, StatusCode};

use super::HttpResponse;
use super::head::Captured;
use crate::{Attempt, Verdict};

/// A borrowed view of an HTTP attempt's outcome, for rules.
pub type HttpOutcome<'a> = OutcomeView<'a, ()>;

/// A borrowed view of an attempt's outcome, for rules: [`HttpOutcome`], or `GrpcOutcome`, which has a `code`.
#[derive(Clone, Copy)]
pub struct OutcomeView<'a, C> {
    request: &'a Captured,
    idempotent: bool,
    attempt: Attempt,
    head: Option<(StatusCode, &'a HeaderMap)>,
    error: Option<&'a dyn Any>,
    verdict: Verdict,
    pub(crate) code: C,
}

impl<'a, C> OutcomeView<'a, C> {
    pub(super) fn new<Res: HttpResponse, E: 'static>(
        request: &'a Captured,
        idempotent: bool,
        attempt: Attempt,
        outcome: &'a Result<Res, E>,
        verdict: Verdict,
        code: C,
    ) -> Self {
        let head = |response: &'a Res| (response.status(), response.headers());
        Self {
            request,
            idempotent,
            attempt,
            head: outcome.as_ref().ok().map(head),
            error: outcome.as_ref().err().map(|error| error as &dyn Any),
            verdict,
            code,
        }
    }

    /// The request's path, without the query. In gRPC this is the full name of the method, such as
    /// `/helloworld.Greeter/SayHello`.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.request.uri.path()
    }

    /// The authority of the request's URI: the host, with the port if the URI has one.
    #[must_use]
    pub fn authority(&self) -> Option<&'a str> {
        self.request.uri.authority().map(Authority::as_str)
    }

    /// Whether the request is idempotent: by its method, by its `Idempotency-Key`, or because a
    /// setting of the layer says so.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// The attempt that had this outcome; the first has the number 1.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// The service's error; `None` if there is a response.
    ///
    /// It is the service's own error type, to be found with `downcast_ref`: behind
    /// `tower::timeout`, for one, that is `tower::BoxError` and not the error inside.
    #[must_use]
    pub fn error(&self) -> Option<&'a dyn Any> {
        self.error
    }

    /// The verdict of the standard rules. It says what happened, not whether a resend is safe.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }
}

impl<'a> HttpOutcome<'a> {
    /// The request's method.
    #[must_use]
    pub fn method(&self) -> &'a Method {
        &self.request.method
    }

    /// The response's status; `None` if there is no response.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.head.map(|(status, _)| status)
    }

    /// The response's header fields; `None` if there is no response.
    #[must_use]
    pub fn headers(&self) -> Option<&'a HeaderMap> {
        self.head.map(|(_, headers)| headers)
    }
}

impl<C: fmt::Debug> fmt::Debug for OutcomeView<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutcomeView")
            .field("method", &self.request.method)
            .field("path", &self.path())
            .field("attempt", &self.attempt)
            .field("status", &self.head.map(|(status, _)| status))
            .field("code", &self.code)
            .field("verdict", &self.verdict)
            .finish_non_exhaustive()
    }
}
