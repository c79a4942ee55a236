//! The configuration that the retry and the hedge layer share. The crates of these layers are its only users.

mod common;
mod live;
mod one_of;
mod parts;
mod setters;

pub use self::common::{Common, Pool};
pub use self::live::{Current, Live};
pub use self::one_of::OneOf;
pub use self::parts::Parts;

/// Whether a layer sends extra attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Sends retries or hedges.
    #[default]
    On,
    /// Sends no extra attempt and changes no request, but counts and reports the extra attempts that the layer would
    /// probably send. Requests are not copied, so the layer cannot tell whether a body is too long to resend.
    ///
    /// A retry layer counts at most one retry per call. It usually takes a token from its budget for this retry, so
    /// give the layer a budget of its own. A retry layer's time limits hold. A hedge layer counts hedges without a
    /// check of its budget or of the service's readiness. It keeps learning latencies. It does not count the hedges
    /// that only `hedge_on_failure` would send.
    Shadow,
    /// Sends no extra attempt, does not copy or change a request, and learns nothing.
    ///
    /// A retry layer's deposits continue, for the other layers that share its budget. The time limits of a retry layer
    /// hold. A hedge layer deposits only into a [`grpc_throttle`](crate::Budget::grpc_throttle).
    Off,
}
