use std::{fmt, time::Duration};

use tokio::time;

use super::ConnectError;

/// The timeouts of a backend over a network.
///
/// # Default
///
/// 5 s for a connection and 500 ms for an answer.
///
/// ```
/// use std::time::Duration;
/// use tower_dist_ratelimit::backend::toolkit::Timeouts;
///
/// let timeouts = Timeouts::default();
/// assert_eq!((timeouts.connect.as_secs(), timeouts.answer.as_millis()), (5, 500));
/// assert!(Timeouts { answer: Duration::ZERO, ..timeouts }.check().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Maximum time of one attempt to connect.
    pub connect: Duration,
    /// Maximum time until the server answers a command.
    pub answer: Duration,
}

impl Timeouts {
    /// Checks that both timeouts are above zero.
    ///
    /// # Errors
    ///
    /// A timeout of zero.
    pub fn check(self) -> Result<(), ConnectError> {
        let timeouts = [
            ("connect_timeout", self.connect),
            ("answer_timeout", self.answer),
        ];
        match timeouts.iter().find(|(_, timeout)| timeout.is_zero()) {
            Some((field, _)) => Err(ConnectError::new(field, "is 0ns, but must be above 0")),
            None => Ok(()),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer: Duration::from_millis(500),
        }
    }
}

/// Awaits `attempt`, and drops it after `timeout`.
///
/// # Errors
///
/// The error of the attempt, or an error that names `to` and the timeout.
///
/// # Cancel safety
///
/// Dropping the future drops the attempt.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use std::{future::pending, time::Duration};
/// use tower_dist_ratelimit::backend::toolkit::connect_within;
///
/// let hangs = connect_within::<()>(Duration::from_secs(5), "cache:6379", pending());
/// assert_eq!(hangs.await.unwrap_err().to_string(), "cache:6379: no answer within 5s");
/// # }
/// ```
pub async fn connect_within<T>(
    timeout: Duration,
    to: impl fmt::Display,
    attempt: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    time::timeout(timeout, attempt).await.unwrap_or_else(|_| {
        let problem = format!("no answer within {timeout:?}");
        Err(ConnectError::new(to, problem))
    })
}
