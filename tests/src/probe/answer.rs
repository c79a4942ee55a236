use std::time::Duration;

use http::StatusCode;
use tokio::time::sleep;

use super::ProbeError;

/// The probe's answer to a call, and its time.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub(super) outcome: Result<StatusCode, ProbeError>,
    /// `None` means never.
    pub(super) after: Option<Duration>,
    pub(super) retry_after: Option<u64>,
}

impl Answer {
    /// Status 200.
    pub const OK: Self = Self::from_outcome(Ok(StatusCode::OK));
    /// Status 503.
    pub const UNAVAILABLE: Self = Self::from_outcome(Ok(StatusCode::SERVICE_UNAVAILABLE));

    /// An error.
    #[must_use]
    pub const fn error(text: &'static str) -> Self {
        Self::from_outcome(Err(ProbeError(text)))
    }

    /// Any status.
    #[must_use]
    pub const fn status(status: StatusCode) -> Self {
        Self::from_outcome(Ok(status))
    }

    const fn from_outcome(outcome: Result<StatusCode, ProbeError>) -> Self {
        Self {
            outcome,
            after: Some(Duration::ZERO),
            retry_after: None,
        }
    }

    /// Delays the answer by `millis` milliseconds.
    #[must_use]
    pub const fn after(mut self, millis: u64) -> Self {
        self.after = Some(Duration::from_millis(millis));
        self
    }

    /// Never answers; the call ends when it is cancelled.
    #[must_use]
    pub const fn never(mut self) -> Self {
        self.after = None;
        self
    }

    /// Adds `Retry-After` in seconds.
    #[must_use]
    pub const fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

/// How an instance becomes ready.
#[derive(Clone, Copy, Debug)]
pub enum Readiness {
    /// Immediately.
    Now,
    /// After this number of milliseconds.
    After(u64),
    /// Never.
    Never,
    /// `poll_ready` fails with this error.
    Fails(&'static str),
}

impl Readiness {
    pub(super) async fn wait(self) -> Result<(), ProbeError> {
        match self {
            Self::Now => Ok(()),
            Self::After(millis) => {
                sleep(Duration::from_millis(millis)).await;
                Ok(())
            }
            Self::Never => std::future::pending().await,
            Self::Fails(text) => Err(ProbeError(text)),
        }
    }
}
