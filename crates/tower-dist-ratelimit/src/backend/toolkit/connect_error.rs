use std::{error::Error, fmt};

/// The error of a backend that could not connect. The message names the problem, and usually the server or the setting.
///
/// Causes include an invalid URL or other setting, an unreachable host, a timeout, credentials that the server rejects,
/// and an unsuitable server, such as one that is too old or read-only. The backends of this project never put a
/// password into the message.
///
/// A backend's `connect` returns this error if it cannot connect now. A backend's `connect_lazy` connects in the
/// background, so it returns this error only for invalid settings.
///
/// ```
/// use tower_dist_ratelimit::backend::toolkit::ConnectError;
///
/// let error = ConnectError::new("cache:6379", "is a read-only replica");
/// assert_eq!(error.to_string(), "cache:6379: is a read-only replica");
/// ```
#[derive(Debug)]
pub struct ConnectError {
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ConnectError {
    /// An error with the message `to: problem`. `to` usually names the server or the setting.
    #[must_use]
    pub fn new(to: impl fmt::Display, problem: impl fmt::Display) -> Self {
        Self {
            message: format!("{to}: {problem}"),
            source: None,
        }
    }

    /// An error with the message `to: problem: source`. `source` is the cause, and also the error's
    /// [`source`](Error::source).
    #[must_use]
    pub fn because(
        to: impl fmt::Display,
        problem: impl fmt::Display,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        let source = source.into();
        Self {
            message: format!("{to}: {problem}: {source}"),
            source: Some(source),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
