use std::any::Any;
use std::fmt;

use super::GrpcCode;
use crate::{Attempt, HttpOutcome, Verdict};

/// A borrowed view of a gRPC attempt's outcome. It has no type parameters, so that closures need no
/// annotation.
#[derive(Clone, Copy)]
pub struct GrpcOutcome<'a> {
    outcome: HttpOutcome<'a>,
    code: Option<GrpcCode>,
}

impl<'a> GrpcOutcome<'a> {
    pub(super) fn new(outcome: HttpOutcome<'a>, code: Option<GrpcCode>) -> Self {
        Self { outcome, code }
    }

    /// The full name of the method, such as `/helloworld.Greeter/SayHello`.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.outcome.path()
    }

    /// The authority of the request's URI: the host, with the port if the URI has one.
    #[must_use]
    pub fn authority(&self) -> Option<&'a str> {
        self.outcome.authority()
    }

    /// Whether the method was declared idempotent.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.outcome.is_idempotent()
    }

    /// The attempt that had this outcome; the first has the number 1.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.outcome.attempt()
    }

    /// The status: the server's, or the one that stands for an error of the connection. `None` if the
    /// response has begun and its status is still to come, or for an unknown error.
    #[must_use]
    pub fn code(&self) -> Option<GrpcCode> {
        self.code
    }

    /// The service's error; `None` if there is a response.
    ///
    /// It is the service's own error type, to be found with `downcast_ref`: of tonic's `Channel`
    /// that is `tonic::transport::Error`.
    #[must_use]
    pub fn error(&self) -> Option<&'a dyn Any> {
        self.outcome.error()
    }

    /// The verdict of the standard rules. It says what happened, not whether a resend is safe.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.outcome.verdict()
    }
}

impl fmt::Debug for GrpcOutcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcOutcome")
            .field("path", &self.path())
            .field("attempt", &self.attempt())
            .field("code", &self.code)
            .field("verdict", &self.verdict())
            .finish_non_exhaustive()
    }
}
