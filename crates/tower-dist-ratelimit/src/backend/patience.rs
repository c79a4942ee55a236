use std::{fmt, time::Duration};

use tokio::time::timeout;

use super::ConnectError;

/// How long to wait for a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For a connection.
    pub(super) connect: Duration,
    /// For an answer.
    pub(super) answer: Duration,
}

impl Patience {
    /// # Errors
    ///
    /// A deadline at which nothing could ever be there.
    pub(super) fn check(self) -> Result<(), ConnectError> {
        let deadlines = [
            ("connect_timeout", self.connect),
            ("answer_timeout", self.answer),
        ];
        match deadlines.iter().find(|(_, deadline)| deadline.is_zero()) {
            Some((field, _)) => Err(ConnectError::new(field, "is 0ns, but must be above 0")),
            None => Ok(()),
        }
    }
}

/// What is waited where nothing else is said.
impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer: Duration::from_millis(500),
        }
    }
}

/// Gives up an attempt to connect after this deadline.
pub(super) async fn within<T>(
    deadline: Duration,
    to: impl fmt::Display,
    attempt: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    timeout(deadline, attempt).await.unwrap_or_else(|_| {
        let problem = format!("no answer within {deadline:?}");
        Err(ConnectError::new(to, problem))
    })
}
