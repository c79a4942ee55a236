use std::any::Any;
use std::fmt;

use http::uri::Authority;
use http::{HeaderMap, Method, StatusCode, Uri};

use crate::{Attempt, Verdict};

/// An outcome by the standard rules.
#[derive(Clone, Copy, Debug)]
pub struct Judged<C> {
    /// What happened. [`Verdict::Unprocessed`] and [`Verdict::not_sent`] are proof.
    pub(crate) verdict: Verdict,
    /// Whether the server has said that it did no work: a resend is safe whatever the request does.
    pub(crate) rejected: bool,
    pub(crate) code: C,
}

/// A borrowed view of an HTTP attempt's outcome, for rules.
pub type HttpOutcome<'a> = OutcomeView<'a, ()>;

/// A borrowed view of an attempt's outcome, for rules: [`HttpOutcome`], or `GrpcOutcome`, which has a `code`.
#[derive(Clone, Copy)]
pub struct OutcomeView<'a, C> {
    pub(super) request: &'a (Method, Uri),
    pub(super) idempotent: bool,
    pub(super) attempt: Attempt,
    pub(super) response: Option<(StatusCode, &'a HeaderMap)>,
    pub(super) error: Option<&'a dyn Any>,
    pub(super) verdict: Verdict,
    pub(crate) code: C,
}

impl<'a, C> OutcomeView<'a, C> {
    /// The request's path, without the query. In gRPC this is the full name of the method, such as
    /// `/helloworld.Greeter/SayHello`.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.request.1.path()
    }

    /// The authority of the request's URI: the host, with the port if the URI has one.
    #[must_use]
    pub fn authority(&self) -> Option<&'a str> {
        self.request.1.authority().map(Authority::as_str)
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
        &self.request.0
    }

    /// The response's status; `None` if there is no response.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.response.map(|(status, _)| status)
    }

    /// The response's header fields; `None` if there is no response.
    #[must_use]
    pub fn headers(&self) -> Option<&'a HeaderMap> {
        self.response.map(|(_, headers)| headers)
    }
}

impl<C: fmt::Debug> fmt::Debug for OutcomeView<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutcomeView")
            .field("method", &self.request.0)
            .field("path", &self.path())
            .field("attempt", &self.attempt)
            .field("status", &self.response.map(|(status, _)| status))
            .field("code", &self.code)
            .field("verdict", &self.verdict)
            .finish_non_exhaustive()
    }
}
