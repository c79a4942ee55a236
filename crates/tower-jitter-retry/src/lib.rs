#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
mod future;
mod jitter;
mod layer;
mod observe;
mod retry_after;
mod service;
mod settings;

pub use tower_attempt::{
    Attempt, AttemptKind, Budget, BuildError, Classify, CustomBackoff, EveryError, Plain, Replays,
    RetryReason, Rules, Verdict,
};
#[cfg(feature = "http")]
pub use tower_attempt::{Http, HttpClassify, HttpClassifyFn, HttpOutcome, ReplayableBody};

pub use self::backoff::{Backoff, Schedule};
pub use self::future::ResponseFuture;
pub use self::jitter::Jitter;
pub use self::layer::{RetryLayer, RetryLayerBuilder};
pub use self::observe::{DelaySource, NoObserver, Observer, StopReason};
pub use self::service::Retry;
pub use self::settings::RetryHandle;
