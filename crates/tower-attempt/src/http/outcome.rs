use std::any::Any;
use std::fmt;

use http::uri::Authority;
use http::{HeaderMap, Method, StatusCode, Uri};

use crate::{Attempt, Verdict};

/// How HTTP or gRPC classifies an outcome, before the user's `classify` rule and before the check that a resend is safe.
#[derive(Clone, Copy, Debug)]
pub struct Classified<C> {
    /// The verdict. [`Verdict::Unprocessed`] and [`Verdict::not_sent`] prove that the server did not process the
    /// request.
    pub(crate) verdict: Verdict,
    /// Whether the outcome is a response that counts as a rejection before any work. If so, the request counts as safe
    /// to resend, even if it is not idempotent.
    pub(crate) rejected: bool,
    pub(crate) code: C,
}

/// A borrowed view of an HTTP attempt's outcome, for rules.
pub type HttpOutcome<'a> = OutcomeView<'a, ()>;

/// A borrowed view of an attempt's outcome, for the `classify` rule of a layer and the `backoff_by` rule of a retry
/// layer.
///
/// The rules receive the view as [`HttpOutcome`], which has the method, the status and the header fields, or as
/// `GrpcOutcome`, which has a `code`.
#[derive(Clone, Copy)]
pub struct OutcomeView<'a, C> {
    pub(super) request: &'a (Method, Uri),
    pub(super) idempotent: bool,
    pub(super) attempt: Attempt,
    pub(super) outcome: Result<(StatusCode, &'a HeaderMap), &'a dyn Any>,
    pub(super) verdict: Verdict,
    pub(crate) code: C,
}

impl<'a, C> OutcomeView<'a, C> {
    /// Returns the request's path, without the query. In gRPC it is the full name of the method, such as
    /// `/helloworld.Greeter/SayHello`.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.request.1.path()
    }

    /// Returns the authority of the request's URI: the host, with the user information and the port if the URI has
    /// them. Returns `None` if the URI has no authority.
    #[must_use]
    pub fn authority(&self) -> Option<&'a str> {
        self.request.1.authority().map(Authority::as_str)
    }

    /// Whether the request is idempotent. Over HTTP, the method, an `Idempotency-Key` that is not empty, or a setting
    /// of the layer makes it idempotent. Over gRPC, only a setting does.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// Returns the attempt that had this outcome. The first attempt has the number 1.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Returns the error of the service, or the error that a timeout created. Returns `None` if the outcome is a
    /// response, whether the service returned it or a timeout created it.
    ///
    /// Use `downcast_ref` with the service's own error type. For example, the error type of tower's `Timeout` is
    /// `tower::BoxError`, and not the type of the error inside.
    #[must_use]
    pub fn error(&self) -> Option<&'a dyn Any> {
        self.outcome.err()
    }

    /// Returns the verdict of the standard rules of [`Http`](crate::Http) or [`Grpc`](crate::Grpc). It describes the
    /// outcome, and not whether a resend is safe.
    ///
    /// After the layer's attempt timeout, a `classify` rule gets [`Verdict::timeout`]. A `backoff_by` rule gets the
    /// standard verdict on the response or error that the timeout created.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }
}

impl<'a> HttpOutcome<'a> {
    /// Returns the request's method.
    #[must_use]
    pub fn method(&self) -> &'a Method {
        &self.request.0
    }

    /// Returns the response's status; `None` if there is no response.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.outcome.ok().map(|(status, _)| status)
    }

    /// Returns the response's header fields; `None` if there is no response.
    #[must_use]
    pub fn headers(&self) -> Option<&'a HeaderMap> {
        self.outcome.ok().map(|(_, headers)| headers)
    }
}

impl<C: fmt::Debug> fmt::Debug for OutcomeView<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutcomeView")
            .field("method", &self.request.0)
            .field("path", &self.path())
            .field("attempt", &self.attempt)
            .field("status", &self.outcome.ok().map(|(status, _)| status))
            .field("code", &self.code)
            .field("verdict", &self.verdict)
            .finish_non_exhaustive()
    }
}
