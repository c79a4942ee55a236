#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod future;
mod layer;
mod observe;
mod service;
mod settings;
mod trigger;

pub use tower_attempt::{
    Attempt, AttemptKind, Budget, BuildError, Classify, EveryError, Plain, Replays, RetryReason,
    Rules, Verdict,
};
#[cfg(feature = "http")]
pub use tower_attempt::{Http, HttpClassify, HttpClassifyFn, HttpOutcome, ReplayableBody};

pub use self::future::ResponseFuture;
pub use self::layer::{HedgeLayer, HedgeLayerBuilder};
pub use self::observe::{NoObserver, Observer};
pub use self::service::Hedge;
pub use self::settings::HedgeHandle;
