use std::error::Error;
use std::io;

use super::Elapsed;
use crate::ByClone;

/// What a service's caller gets when a time limit ran out: implemented for the error types that can
/// say it.
///
/// | error type | answer |
/// |---|---|
/// | `Box<dyn Error + Send + Sync>` (`tower::BoxError`) | an `Err` with the [`Elapsed`] |
/// | `std::io::Error` | an `Err` of the kind `TimedOut` |
/// | `std::convert::Infallible` (axum) | a 504 with an empty body |
/// | `reqwest::Error` | a 504 with an empty body |
/// | `tonic::Status` | an `Err`, DEADLINE_EXCEEDED |
///
/// A layer with gRPC's rules needs none of these: it answers with DEADLINE_EXCEEDED in the response.
///
/// # Errors
///
/// For any other error type a layer with hard time limits does not compile where it is put around
/// a service; where the compiler only says that `call` is not there, ask it for this bound:
/// `fn check<E: TimeoutAnswer<Res>, Res>() {}`. Either give the layer an `on_timeout` closure, or
/// implement this trait.
///
/// ```
/// use tower_attempt::{Elapsed, TimeoutAnswer};
///
/// enum StoreError {
///     Late(Elapsed),
/// }
///
/// impl<Res> TimeoutAnswer<Res> for StoreError {
///     fn timed_out(elapsed: Elapsed) -> Result<Res, Self> {
///         Err(Self::Late(elapsed))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a time limit needs to know what a timeout looks like with the error type `{Self}`",
    label = "this error type has no answer for a timeout",
    note = "add `.on_timeout(|elapsed| ..)` to the layer's builder, after `.attempt_timeout` or `.deadline`, with a closure that returns the `Result` to answer with",
    note = "or implement `TimeoutAnswer` for `{Self}`, or box the service's error as a `tower::BoxError`"
)]
pub trait TimeoutAnswer<Res>: Sized {
    /// The outcome of what took too long.
    ///
    /// # Errors
    ///
    /// If a timeout is an error here.
    fn timed_out(elapsed: Elapsed) -> Result<Res, Self>;
}

impl<Res> TimeoutAnswer<Res> for Box<dyn Error + Send + Sync> {
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

/// What a timeout looks like in a protocol, by the way its requests are repeated.
pub trait TimedOut<Res, E> {
    /// The outcome of what took too long.
    ///
    /// # Errors
    ///
    /// If a timeout is an error here.
    fn timed_out(elapsed: Elapsed) -> Result<Res, E>;
}

impl<Res, E: TimeoutAnswer<Res>> TimedOut<Res, E> for ByClone {
    fn timed_out(elapsed: Elapsed) -> Result<Res, E> {
        E::timed_out(elapsed)
    }
}

#[cfg(feature = "http")]
impl<Res, E: TimeoutAnswer<Res>> TimedOut<Res, E> for crate::ByBody {
    fn timed_out(elapsed: Elapsed) -> Result<Res, E> {
        E::timed_out(elapsed)
    }
}

#[cfg(feature = "grpc")]
impl<B: Default, E> TimedOut<http::Response<B>, E> for crate::ByMessage {
    fn timed_out(elapsed: Elapsed) -> Result<http::Response<B>, E> {
        Ok(crate::grpc::deadline_exceeded(elapsed))
    }
}
