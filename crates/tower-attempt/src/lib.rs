//! What retries and hedged requests share: everything about sending one request more than once through a
//! [tower](https://docs.rs/tower) service. Users of [`tower-jitter-retry`](https://docs.rs/tower-jitter-retry) and
//! [`tower-hedge-latency`](https://docs.rs/tower-hedge-latency) find what they need of it there; this crate is for those who
//! write a layer of their own.
//!
//! - [`Budget`]: an allowance of extra attempts that several layers share, exact under any concurrency, in one atomic word.
//! - [`Budgets`]: one for each destination, bounded in number.
//! - [`Protocol`]: [`Http`], `Grpc` and [`Generic`] decide which requests are safe to resend.
//! - [`Classify`] and [`Verdict`]: the meaning of an outcome. [`EveryError`] retries every `Err`; a rule of your own
//!   classifies the outcomes of any service.
//! - [`ReplayableRequest`]: copies of an HTTP request, whose body is shared if it is in memory, and recorded if it streams.
//! - [`Attempt`]: which attempt a request is. Extra attempts carry it in their extensions.
//! - [`Rejected`] and [`WrapsError`]: how a layer below says that it rejected a request.
//! - [`Observer`]: receives events from a layer.
//! - [`RetryOverride`] and [`HedgeOverride`]: the settings of one request that differ from those of a layer.
//! - [`Deadline`] and [`TimeoutAnswer`]: until when to wait, and the outcome of a timeout.
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
//! | `hyper-util-01` | the errors of hyper-util 0.1's client, hyper 1 and h2 0.4 are recognised: see [`Http`] |
//! | `axum-08` | `axum::body::Body` of axum 0.8 can be repeated |
//! | `tonic-014` | `tonic::body::Body` of tonic 0.14 can be resent, and the errors of its client are recognised |
//! | `tower` | [`Budget`] serves as the budget of tower's own retry |
//! | `reqwest-013` | `reqwest::Request` and `reqwest::Body` of reqwest 0.13 can be resent, and its errors are recognised |
//! | `tracing` | `TracingObserver` |
//! | `metrics` | `MetricsObserver` |
//!
//! A feature only adds; none changes what the others do. None enables HTTP/1 or HTTP/2 in the servers of the same build,
//! except that `tonic-014` and `reqwest-013` need the protocols of these clients. The minimum supported Rust version is 1.88.
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
    Dialect, Http, HttpContext, HttpOutcome, HttpRequest, HttpResponse, OutcomeView, RequestHead,
    Settings, Target,
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
