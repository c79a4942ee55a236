mod grpc;
mod problem_json;
mod refusal;

use http::Response;

pub use grpc::Grpc;
pub use problem_json::ProblemJson;
pub(crate) use problem_json::over_quota;
pub use refusal::{Reason, Refusal};

/// Makes the response to a request that is refused, in the body type of the service, so that the responses that pass
/// need no other type.
///
/// The layer adds `Retry-After`, unless the response has one, and the fields that [`Fields`](crate::Fields) ask for.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot make a refusal with the body `{B}`",
    note = "by default the response body must be `From<Bytes>`; for tonic's, end the builder with `.grpc()`; for any other, give it a closure with `.refusal(..)`"
)]
pub trait Refuse<B> {
    /// The response to this refusal.
    fn refuse(&self, refusal: &Refusal<'_>) -> Response<B>;

    /// Whether the response says by itself when to come back, so that it needs no `Retry-After`. By default it does not.
    fn says_when(&self) -> bool {
        false
    }
}

/// Refuses with what a closure returns, from [`refusal`](crate::RateLimitLayerBuilder::refusal).
#[derive(Clone, Copy)]
pub struct RefuseWith<F>(pub(crate) F);

impl<F, B> Refuse<B> for RefuseWith<F>
where
    F: Fn(&Refusal<'_>) -> Response<B>,
{
    fn refuse(&self, refusal: &Refusal<'_>) -> Response<B> {
        (self.0)(refusal)
    }
}

impl<F> std::fmt::Debug for RefuseWith<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RefuseWith(..)")
    }
}
