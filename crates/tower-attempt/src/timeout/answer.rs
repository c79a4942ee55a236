use std::error::Error;
use std::io;

use super::Elapsed;
use crate::Generic;

/// Creates the outcome of a timeout for services with this error type. If no retry follows, the caller receives this
/// outcome. `Res` is the response type of the service.
///
/// | error type | response type | feature | outcome |
/// |---|---|---|---|
/// | `Box<dyn Error + Send + Sync>` (`tower::BoxError`) | any | | an `Err` with the [`Elapsed`] |
/// | `std::io::Error` | any | | an `Err` of the kind `TimedOut` |
/// | `std::convert::Infallible` (axum) | `http::Response` | `http` | a 504 with an empty body |
/// | `reqwest::Error` | `reqwest::Response` | `reqwest-013` | a 504 with an empty body |
/// | `tonic::Status` | any | `tonic-014` | an `Err` with the code DEADLINE_EXCEEDED |
///
/// The protocol gRPC does not use this trait: by default, the outcome is a response with DEADLINE_EXCEEDED. The body
/// type of an `http::Response` that this crate creates must implement `Default`.
///
/// # Errors
///
/// A layer with `attempt_timeout` or `deadline` requires this trait of the error type, unless the layer has an
/// `on_timeout` closure or the protocol gRPC. Without the required trait, the layer's service does not implement
/// `Service`. For `axum::Router::layer` and functions that take a `Service`, the compiler then explains the missing
/// trait. For a plain `service.call(..)`, the compiler's message can be less clear. Give the layer an `on_timeout`
/// closure, or implement this trait:
///
/// ```
/// use std::time::Duration;
/// use tower_attempt::{Elapsed, TimeoutAnswer};
///
/// #[derive(Debug, PartialEq)]
/// enum StoreError {
///     Late(Elapsed),
/// }
///
/// impl<Res> TimeoutAnswer<Res> for StoreError {
///     fn timed_out(elapsed: Elapsed) -> Result<Res, Self> {
///         Err(Self::Late(elapsed))
///     }
/// }
///
/// let elapsed = Elapsed::Attempt(Duration::from_secs(1));
/// assert_eq!(StoreError::timed_out(elapsed), Err::<(), _>(StoreError::Late(elapsed)));
/// ```
#[diagnostic::on_unimplemented(
    message = "the error type `{Self}` has no outcome for a timeout",
    label = "`TimeoutAnswer` is not implemented for this error type",
    note = "add `.on_timeout(|elapsed| ..)` to the layer's builder, after `.attempt_timeout` or `.deadline`, with a closure that returns the outcome",
    note = "or implement `TimeoutAnswer` for `{Self}`, or box the service's error as a `tower::BoxError`"
)]
pub trait TimeoutAnswer<Res>: Sized {
    /// Returns the outcome of a timeout.
    ///
    /// # Errors
    ///
    /// Returns an error if this error type reports a timeout as an error.
    fn timed_out(elapsed: Elapsed) -> Result<Res, Self>;
}

impl<'a, Res> TimeoutAnswer<Res> for Box<dyn Error + Send + Sync + 'a> {
    fn timed_out(elapsed: Elapsed) -> Result<Res, Self> {
        Err(elapsed.into())
    }
}

impl<Res> TimeoutAnswer<Res> for io::Error {
    fn timed_out(elapsed: Elapsed) -> Result<Res, Self> {
        Err(Self::new(io::ErrorKind::TimedOut, elapsed))
    }
}

#[cfg(feature = "http")]
impl<B: Default> TimeoutAnswer<http::Response<B>> for std::convert::Infallible {
    fn timed_out(_: Elapsed) -> Result<http::Response<B>, Self> {
        Ok(gateway_timeout())
    }
}

#[cfg(feature = "reqwest-013")]
impl TimeoutAnswer<reqwest::Response> for reqwest::Error {
    fn timed_out(_: Elapsed) -> Result<reqwest::Response, Self> {
        Ok(gateway_timeout::<reqwest::Body>().into())
    }
}

#[cfg(feature = "tonic-014")]
impl<Res> TimeoutAnswer<Res> for tonic::Status {
    fn timed_out(elapsed: Elapsed) -> Result<Res, Self> {
        Err(Self::deadline_exceeded(elapsed.to_string()))
    }
}

#[cfg(feature = "http")]
fn gateway_timeout<B: Default>() -> http::Response<B> {
    let mut response = http::Response::new(B::default());
    *response.status_mut() = http::StatusCode::GATEWAY_TIMEOUT;
    response
}

/// Creates the outcome of a timeout. For gRPC, it is a response with the status DEADLINE_EXCEEDED. The other protocols
/// of this crate use the [`TimeoutAnswer`] of the service's error type.
pub trait TimedOut<Res, E> {
    /// Returns the outcome of a timeout.
    ///
    /// # Errors
    ///
    /// Returns an error if the protocol or the service's error type reports a timeout as an error.
    fn timed_out(elapsed: Elapsed) -> Result<Res, E>;
}

impl<C, Res, E: TimeoutAnswer<Res>> TimedOut<Res, E> for Generic<C> {
    fn timed_out(elapsed: Elapsed) -> Result<Res, E> {
        E::timed_out(elapsed)
    }
}

#[cfg(feature = "http")]
impl<Res, E: TimeoutAnswer<Res>> TimedOut<Res, E> for crate::Http {
    fn timed_out(elapsed: Elapsed) -> Result<Res, E> {
        E::timed_out(elapsed)
    }
}

#[cfg(feature = "grpc")]
impl<B: Default, E> TimedOut<http::Response<B>, E> for crate::Grpc {
    fn timed_out(elapsed: Elapsed) -> Result<http::Response<B>, E> {
        Ok(crate::grpc::deadline_exceeded(elapsed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ELAPSED: Elapsed = Elapsed::Attempt(Duration::from_millis(30));

    type BoxError = Box<dyn Error + Send + Sync>;

    #[test]
    fn an_error_that_can_express_a_timeout_contains_it() {
        let boxed = <BoxError as TimeoutAnswer<()>>::timed_out(ELAPSED).unwrap_err();
        assert_eq!(boxed.downcast_ref(), Some(&ELAPSED));
        let error = <io::Error as TimeoutAnswer<()>>::timed_out(ELAPSED).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let inner = error.into_inner().unwrap();
        assert_eq!(inner.downcast_ref(), Some(&ELAPSED));
    }

    #[cfg(feature = "http")]
    #[test]
    fn a_service_that_cannot_fail_answers_504() {
        let Ok(response) = <std::convert::Infallible as TimeoutAnswer<_>>::timed_out(ELAPSED);
        let response: http::Response<String> = response;
        assert_eq!(response.status(), http::StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(response.body(), "");
    }

    #[cfg(feature = "reqwest-013")]
    #[test]
    fn reqwest_answers_504() {
        let response = <reqwest::Error as TimeoutAnswer<_>>::timed_out(ELAPSED).unwrap();
        assert_eq!(response.status(), http::StatusCode::GATEWAY_TIMEOUT);
    }

    #[cfg(feature = "tonic-014")]
    #[test]
    fn a_tonic_status_is_deadline_exceeded() {
        let status = <tonic::Status as TimeoutAnswer<()>>::timed_out(ELAPSED).unwrap_err();
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
    }
}
