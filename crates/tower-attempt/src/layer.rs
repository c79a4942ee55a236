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
    /// Sends no extra attempt and changes no call, but counts and reports the extra attempts that the layer would send.
    /// Requests are not copied, so the layer cannot tell whether a body is too long to resend.
    ///
    /// A retry layer takes a token from its budget for each retry that it counts, so give the layer a budget of its own. A
    /// hedge layer uses neither its budget nor the readiness of the service. It keeps learning latencies.
    Shadow,
    /// Sends no extra attempt, copies nothing, changes nothing and learns nothing.
    ///
    /// A retry layer keeps depositing into its budget, for the layers that share it. A hedge layer does so only into a
    /// [`grpc_throttle`](crate::Budget::grpc_throttle).
    Off,
}
