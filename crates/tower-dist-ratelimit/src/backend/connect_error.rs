use std::{error::Error, fmt};

/// Why a store's `connect` has no connection: what it tried to reach, and what came of it.
///
/// A URL that cannot be read, a host that cannot be reached, no answer within the deadline, a password or user that the
/// server does not accept or that may not run scripts, a server that is too old, cannot do what is needed, or is only a
/// replica.
///
/// It never shows a password. `connect` makes one attempt. `connect_lazy` returns this error only for settings that cannot
/// work, and then retries in the background.
#[derive(Debug)]
pub struct ConnectError {
    to: String,
    problem: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ConnectError {
    pub(in crate::backend) fn new(to: impl fmt::Display, problem: impl fmt::Display) -> Self {
        Self {
            to: to.to_string(),
            problem: problem.to_string(),
            source: None,
        }
    }

    pub(in crate::backend) fn because(
        to: impl fmt::Display,
        problem: impl fmt::Display,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            source: Some(source.into()),
            ..Self::new(to, problem)
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.to, self.problem)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
