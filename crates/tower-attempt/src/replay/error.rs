use std::error::Error;
use std::fmt;

/// The error of a [`ReplayBody`](crate::ReplayBody).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError<E> {
    /// The wrapped body returned this error.
    Source(E),
    /// The attempt cannot receive the remaining body: see [`Interrupted`].
    Interrupted,
}

impl<E> From<Interrupted> for ReplayError<E> {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}

impl<E: fmt::Display> fmt::Display for ReplayError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(error) => error.fmt(f),
            Self::Interrupted => Interrupted.fmt(f),
        }
    }
}

impl<E: Error + 'static> Error for ReplayError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Source(error) => Some(error),
            Self::Interrupted => Some(&Interrupted),
        }
    }
}

/// The attempt cannot receive the remaining request body.
///
/// There are two usual causes. Either the body is longer than the limit of
/// [`ReplayableRequest`](crate::ReplayableRequest), and another attempt continues with the body. Or the body failed,
/// and another attempt receives the body's own error. An attempt is also interrupted if, in another attempt, the body
/// panics or returns a frame of an unknown kind, which cannot be copied.
///
/// A layer usually does not report an interrupted attempt to its caller while another attempt is in flight. After an
/// interruption, this error is among the sources of the error of an `axum::body::Body`, `tonic::body::Body`,
/// `reqwest::Body` or [`ReplayBody`](crate::ReplayBody).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the rest of the request body is not available to this attempt")
    }
}

impl Error for Interrupted {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_an_interrupted_body_is_the_same_in_both_errors() {
        let text = "the rest of the request body is not available to this attempt";
        assert_eq!(Interrupted.to_string(), text);
        let error = ReplayError::<fmt::Error>::from(Interrupted);
        assert_eq!(error.to_string(), text);
        assert_eq!(error.source().unwrap().to_string(), text);
    }

    #[test]
    fn the_message_of_a_failed_body_is_the_bodys() {
        let error = ReplayError::Source(fmt::Error);
        assert_eq!(error.to_string(), fmt::Error.to_string());
    }
}
