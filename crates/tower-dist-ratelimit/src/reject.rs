mod grpc;
mod problem;
mod problem_json;
mod reason;
mod rejection;

use http::Response;

pub use grpc::GrpcRejection;
pub(crate) use problem::over_quota;
pub use problem_json::ProblemJson;
pub use reason::Reason;
pub use rejection::Rejection;

/// Builds the response to a rejected request. `B` is the type of the inner service's response bodies, so that all
/// responses have one type. A closure `Fn(&Rejection<'_>) -> Response<B>` implements the trait.
///
/// The layer adds the headers of [`ResponseHeaders`](crate::ResponseHeaders). If the wait is known, it also adds
/// `Retry-After`, unless the response has it or [`has_retry_hint`](Self::has_retry_hint) returns `true`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot make a rejection with the body `{B}`",
    note = "by default the response body must be `From<Bytes>`; for tonic's, end the builder with `.grpc()`; for any other, give it a closure with `.rejection(..)`"
)]
pub trait RejectionResponse<B> {
    /// Returns the response to this rejection.
    fn response(&self, rejection: &Rejection<'_>) -> Response<B>;

    /// Returns whether the response carries its own retry hint and needs no `Retry-After`.
    ///
    /// # Default
    ///
    /// `false`.
    fn has_retry_hint(&self) -> bool {
        false
    }
}

impl<F, B> RejectionResponse<B> for F
where
    F: Fn(&Rejection<'_>) -> Response<B>,
{
    fn response(&self, rejection: &Rejection<'_>) -> Response<B> {
        self(rejection)
    }
}
