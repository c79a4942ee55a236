#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attempt;
mod budget;
mod build_error;
mod classify;
#[cfg(feature = "http")]
mod http;
mod replay;
mod rules;

pub use self::attempt::{Attempt, AttemptKind};
pub use self::budget::{Budget, Permit};
pub use self::build_error::BuildError;
pub use self::classify::{Classify, CustomBackoff, EveryError, RetryReason, Verdict};
#[cfg(feature = "http")]
pub use self::http::{
    HttpClassify, HttpClassifyFn, HttpContext, HttpOutcome, HttpRequest, HttpResponse,
};
#[cfg(feature = "http")]
pub use self::replay::{ByBody, ReplayableBody};
pub use self::replay::{ByClone, Replays};
#[cfg(feature = "http")]
pub use self::rules::Http;
pub use self::rules::{Plain, Rules};
