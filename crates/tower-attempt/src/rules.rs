#[cfg(feature = "http")]
use crate::{ByBody, HttpClassify};
use crate::{ByClone, EveryError};
#[cfg(feature = "grpc")]
use crate::{ByMessage, GrpcClassify};

/// What a layer needs to know of a protocol: how outcomes are judged and how requests are copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules<C, R> {
    /// Judges outcomes.
    pub classify: C,
    /// Copies requests.
    pub replays: R,
}

/// Rules for any service whose requests are `Clone`: every `Err` may be repeated, no `Ok`.
pub type Plain = Rules<EveryError, ByClone>;

/// Rules for HTTP: see [`HttpClassify`] and [`ReplayableBody`](crate::ReplayableBody).
#[cfg(feature = "http")]
pub type Http = Rules<HttpClassify, ByBody>;

/// Rules for gRPC: see [`GrpcClassify`].
#[cfg(feature = "grpc")]
pub type Grpc = Rules<GrpcClassify, ByMessage>;
