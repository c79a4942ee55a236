use std::any::Any;
use std::fmt;

use super::GrpcCode;
use crate::Verdict;

/// A gRPC attempt's outcome, without its type parameters, so that closures need no annotation.
pub struct GrpcOutcome<'a> {
    code: Option<GrpcCode>,
    error: Option<&'a dyn Any>,
    verdict: Verdict,
}

impl<'a> GrpcOutcome<'a> {
    pub(super) fn new<E: 'static>(
        code: Option<GrpcCode>,
        error: Option<&'a E>,
        verdict: Verdict,
    ) -> Self {
        Self {
            code,
            error: error.map(|error| error as &dyn Any),
            verdict,
        }
    }

    /// The status: the server's, or the one that stands for an error of the connection. `None` if the
    /// response has begun and its status is still to come, or for an error that is not known.
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
        self.error
    }

    /// What the standard rules say.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }
}

impl fmt::Debug for GrpcOutcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcOutcome")
            .field("code", &self.code)
            .field("verdict", &self.verdict)
            .finish_non_exhaustive()
    }
}
