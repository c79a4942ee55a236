mod answer;

use std::error::Error;
use std::fmt;
use std::time::Duration;

pub use self::answer::{TimedOut, TimeoutAnswer};

/// How long one attempt may take, in an HTTP request's extensions: wins over a retry layer's
/// `attempt_timeout`, in a layer that has hard time limits.
///
/// ```
/// use std::time::Duration;
/// use tower_attempt::AttemptTimeout;
///
/// // This one is known to be slow.
/// let request = http::Request::get("/report")
///     .extension(AttemptTimeout::after(Duration::from_secs(30)))
///     .body(())?;
/// # let _ = request;
/// # Ok::<_, http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptTimeout(Option<Duration>);

impl AttemptTimeout {
    /// An attempt may take as long as the call.
    pub const NONE: Self = Self(None);

    /// So long, from when the attempt is sent.
    #[must_use]
    pub const fn after(limit: Duration) -> Self {
        Self(Some(limit))
    }

    /// How long; `None` for as long as the call may take.
    #[must_use]
    pub const fn limit(self) -> Option<Duration> {
        self.0
    }
}

/// A time limit ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Elapsed {
    /// An attempt's: it took longer than this.
    Attempt(Duration),
    /// The whole call's, with its attempts and waits: it ended after this time.
    Call(Duration),
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attempt(limit) => write!(f, "no answer to an attempt within {limit:?}"),
            Self::Call(time) => write!(f, "the call's time limit ran out after {time:?}"),
        }
    }
}

impl Error for Elapsed {}
