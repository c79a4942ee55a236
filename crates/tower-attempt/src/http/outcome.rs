use std::any::Any;
use std::fmt;

use http::{HeaderMap, StatusCode};

use super::HttpResponse;
use crate::Verdict;

/// An HTTP attempt's outcome, without its type parameters, so that closures need no annotation.
pub struct HttpOutcome<'a> {
    head: Option<(StatusCode, &'a HeaderMap)>,
    error: Option<&'a dyn Any>,
    verdict: Verdict,
}

impl<'a> HttpOutcome<'a> {
    pub(super) fn new<Res: HttpResponse, E: 'static>(
        outcome: &'a Result<Res, E>,
        verdict: Verdict,
    ) -> Self {
        Self {
            head: outcome
                .as_ref()
                .ok()
                .map(|response| (response.status(), response.headers())),
            error: outcome.as_ref().err().map(|error| error as &dyn Any),
            verdict,
        }
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

    /// The service's error; `None` if there is a response.
    ///
    /// It is the service's own error type, to be found with `downcast_ref`: behind
    /// `tower::timeout`, for one, that is `tower::BoxError` and not the error inside.
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

impl fmt::Debug for HttpOutcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOutcome")
            .field("status", &self.status())
            .field("verdict", &self.verdict)
            .finish_non_exhaustive()
    }
}
