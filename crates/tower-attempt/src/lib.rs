//! The shared parts of retries and hedged requests: everything about sending one request more than once through a
//! [tower](https://docs.rs/tower) service.
//!
//! Use this crate to write your own layer. To use the existing layers, depend on
//! [`tower-jitter-retry`](https://docs.rs/tower-jitter-retry) and
//! [`tower-hedge-latency`](https://docs.rs/tower-hedge-latency), which re-export the types that their users need.
//!
//! | type | purpose |
//! |---|---|
//! | [`Budget`] | an allowance of extra attempts that several layers share, exact under any concurrency, in one atomic word |
//! | [`Budgets`] | a budget for each destination, limited in number |
//! | [`Protocol`] | decides which requests are safe to resend: [`Http`], `Grpc`, or [`Generic`] with a rule |
//! | [`Classify`], [`Verdict`] | the meaning of an outcome; [`EveryError`] calls every `Err` transient, and your own rule classifies the outcomes of any service |
//! | [`ReplayableRequest`] | copies of an HTTP request; its body is shared if it is in memory, and recorded if it streams |
//! | [`Attempt`] | the number and kind of an attempt, in the extensions of an `http::Request` that is an extra attempt |
//! | [`Rejected`], [`WrapsError`] | the error of a layer below that rejected a request, and the trait of error types that wrap it without a box |
//! | [`Observer`] | receives events from a layer |
//! | [`RetryOverride`], [`HedgeOverride`] | settings of one request that replace a layer's |
//! | [`Deadline`], [`TimeoutAnswer`] | the time at which the caller stops waiting, and the outcome of a timeout |
//!
//! # One budget for all extra load
//!
//! Retries and hedges multiply: three attempts with a hedge each are six requests. If both layers draw on one budget,
//! it limits the sum of their extra attempts:
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
//!     // Send the attempt. A permit that is dropped unspent, as in a cancelled call, returns its token.
//!     Some(permit) => permit.spend(),
//!     // Send no extra attempt.
//!     None => {}
//! }
//! # assert_eq!(outer.available(), 19);
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `http` (default) | the protocol HTTP, for `http::Request` and `http::Response` |
//! | `grpc` | the protocol gRPC |
//! | `hyper-util-01` | recognition of the errors of hyper-util 0.1's client, hyper 1 and h2 0.4: see [`Http`] |
//! | `axum-08` | resending of `axum::body::Body` of axum 0.8 |
//! | `tonic-014` | resending of `tonic::body::Body` of tonic 0.14, and recognition of its client's errors |
//! | `reqwest-013` | resending of `reqwest::Request` and `reqwest::Body` of reqwest 0.13, and recognition of its errors |
//! | `tower` | [`Budget`] as the budget of tower's own retry |
//! | `tracing` | `TracingObserver` |
//! | `metrics` | `MetricsObserver` |
//!
//! The feature `tonic-014` enables HTTP/1 and HTTP/2 in hyper, and `reqwest-013` enables HTTP/1, because these clients
//! need the protocols. Cargo then enables them for every crate of the build. The other features enable no protocol of
//! hyper.
//!
//! The minimum supported Rust version is 1.88.
// The documentation links to items that exist only with the feature `grpc`, or with `http`, which `grpc` enables.
#![cfg_attr(not(feature = "grpc"), allow(rustdoc::broken_intra_doc_links))]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attempt;
mod budget;
mod build_error;
mod classify;
mod deadline;
mod errors;
mod generic;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(feature = "http")]
mod http;
mod key;
#[doc(hidden)]
pub mod layer;
mod observe;
mod overrides;
mod protocol;
mod rejected;
#[cfg(feature = "http")]
mod replay;
mod timeout;

pub use self::attempt::{Attempt, AttemptKind};
pub use self::budget::{Budget, Budgets, Permit};
pub use self::build_error::BuildError;
pub use self::classify::{
    Classify, ClassifyFn, EveryError, Hint, RequestRule, RetryIf, RetryReason, Verdict,
};
pub use self::deadline::Deadline;
pub use self::errors::WrapsError;
pub use self::generic::Generic;
#[cfg(feature = "grpc")]
pub use self::grpc::{Grpc, GrpcCode, GrpcOutcome};
#[cfg(feature = "http")]
pub use self::http::{
    Dialect, Http, HttpContext, HttpOutcome, HttpRequest, HttpResponse, OutcomeView,
    ProtocolSettings, RequestHead, UrlHash,
};
pub use self::key::{ByKey, ClassOf, OneClass, PerKey};
pub use self::layer::Mode;
#[cfg(feature = "metrics")]
pub use self::observe::MetricsObserver;
#[cfg(feature = "tracing")]
pub use self::observe::TracingObserver;
pub use self::observe::{
    AttemptOutcome, AttemptScope, CallInfo, DelaySource, Event, LayerKind, NoObserver, Observe,
    Observed, Observer, Record, RequestLine, SkipReason, StopReason,
};
pub use self::overrides::{HedgeOverride, RetryOverride};
pub use self::protocol::{Outcomes, Protocol, Requests};
pub use self::rejected::Rejected;
#[cfg(feature = "http")]
pub use self::replay::{Interrupted, ReplayBody, ReplayError, ReplayableBody, ReplayableRequest};
pub use self::timeout::{Elapsed, TimedOut, TimeoutAnswer};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
