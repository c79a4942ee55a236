use std::time::Duration;

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
            ("connect_deadline", self.connect),
            ("answer_deadline", self.answer),
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
