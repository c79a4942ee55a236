//! What retries and hedged requests share: everything about sending one request more than once through a
//! [tower](https://docs.rs/tower) service. Users of [`tower-jitter-retry`](https://docs.rs/tower-jitter-retry) and
//! [`tower-hedge-latency`](https://docs.rs/tower-hedge-latency) find what they need of it there; this crate is for those who
//! write a layer of their own.
//!
//! - [`Budget`]: an allowance of extra attempts that several layers share, exact under any concurrency, in one atomic word.
//! - [`Budgets`]: one for each destination, bounded in number.
//! - [`Classify`] and [`Verdict`]: what an outcome means. [`HttpClassify`] knows HTTP, `GrpcClassify` gRPC, [`EveryError`]
//!   knows that an `Err` is a failure, and a closure knows the rest.
//! - [`Replays`]: copies of a request. [`ByClone`] clones, [`ByBody`] shares the body of an HTTP request if it is in memory,
//!   and records it if it streams.
//! - [`Attempt`]: which attempt a request is. Extra attempts carry it in their extensions.
//! - [`Deadline`], [`AttemptTimeout`] and [`TimeoutAnswer`]: how long to wait, and what the caller gets then.
//!
//! # One budget for all extra load
//!
//! Retries over hedges multiply: three attempts with a hedge each are six requests. A budget that both draw on bounds what
//! they add together, as a share of the calls:
//!
//! ```
//! use tower_attempt::Budget;
//!
//! // One extra attempt for ten successful calls, and five a second for quiet times.
//! let budget = Budget::ratio(0.1).per_second(5).burst(20);
//!
//! let outer = budget.clone(); // retry: `.budget(outer)` deposits and spends
//! let inner = budget.clone(); // hedge: `.shared_budget(inner)` only spends
//!
//! outer.deposit(); // a call succeeded
//! match inner.withdraw() {
//!     // Sends the attempt. Dropped unspent, for instance because its call was cancelled, the permit goes back.
//!     Some(permit) => permit.spend(),
//!     // Does without.
//!     None => {}
//! }
//! ```
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `http` (default) | the rules for `http::Request` and `http::Response` |
//! | `grpc` | the rules for gRPC |
//! | `axum-08` | `axum::body::Body` of axum 0.8 can be repeated |
//! | `tonic-014` | `tonic::body::Body` of tonic 0.14 can be repeated |
//! | `tower` | [`Budget`] serves as the budget of tower's own retry |
//! | `reqwest-013` | `reqwest::Request` and `reqwest::Body` of reqwest 0.13 can be repeated |
//!
//! A feature only adds; none changes what the others do. The minimum supported Rust version is 1.88.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attempt;
mod budget;
mod build_error;
mod classify;
mod deadline;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(feature = "http")]
mod http;
mod replay;
mod rules;
mod timeout;

pub use self::attempt::{Attempt, AttemptKind};
pub use self::budget::{Budget, Budgets, Permit};
pub use self::build_error::BuildError;
pub use self::classify::{
    BudgetBy, Classify, CustomBackoff, EveryError, Hint, RetryReason, Verdict,
};
pub use self::deadline::Deadline;
#[cfg(feature = "grpc")]
pub use self::grpc::{ByMessage, GrpcClassify, GrpcCode, GrpcContext, GrpcOutcome};
#[cfg(feature = "http")]
pub use self::http::{
    GenerateKey, HttpClassify, HttpContext, HttpOutcome, HttpRequest, HttpResponse, Standard,
    Target,
};
#[cfg(feature = "http")]
pub use self::replay::{ByBody, Interrupted, ReplayBody, ReplayError, ReplayableBody};
pub use self::replay::{ByClone, Replays};
#[cfg(feature = "grpc")]
pub use self::rules::Grpc;
#[cfg(feature = "http")]
pub use self::rules::Http;
pub use self::rules::{Plain, Rules};
pub use self::timeout::{AttemptTimeout, Elapsed, TimedOut, TimeoutAnswer};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
