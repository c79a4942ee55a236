//! Hedged requests for any [tower](https://docs.rs/tower) service: when an answer is late, send the request again, take the
//! first good answer and cancel the rest. It turns the latency tail of a service with spare capacity into a little extra
//! load: in Google's experiment, 2 % more requests took the 99.9th percentile of a fan-out over 1,000 keys from 1,800 ms to
//! 74 ms (Dean and Barroso, *The Tail at Scale*, 2013).
//!
//! # Five minutes
//!
//! ```
//! use std::time::Duration;
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use tower::ServiceBuilder;
//! use tower_hedge_latency::{Budget, HedgeLayer};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tower::BoxError> {
//! let layer = HedgeLayer::builder()
//!     // Later than 95 of 100 answers come.
//!     .fixed(Duration::from_millis(50))
//!     // Never more than 5 % on top.
//!     .budget(Budget::ratio(0.05))
//!     // Only requests that are safe to send twice; an answer such as a 503 does not win.
//!     .http()
//!     .build()?;
//!
//! let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
//! let client = ServiceBuilder::new().layer(layer).service(client);
//! # let _ = client;
//! # Ok(())
//! # }
//! ```
//!
//! A service of your own, with any request that is `Clone`:
//!
//! ```
//! use std::convert::Infallible;
//! use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
//! use std::time::Duration;
//! use tokio::time::{Instant, sleep};
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//! use tower_hedge_latency::HedgeLayer;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), tower::BoxError> {
//! let from_ms = Duration::from_millis;
//! // Offsets from the call's start.
//! let layer = HedgeLayer::builder().delays([from_ms(21), from_ms(42)]).build()?;
//!
//! static CALLS: AtomicU32 = AtomicU32::new(0);
//! let slow_at_first = service_fn(|name: &'static str| async move {
//!     let first = CALLS.fetch_add(1, Relaxed) == 0;
//!     sleep(if first { from_ms(115) } else { from_ms(15) }).await;
//!     Ok::<_, Infallible>(format!("hello, {name}"))
//! });
//! let mut service = ServiceBuilder::new().layer(layer).service(slow_at_first);
//!
//! let start = Instant::now();
//! assert_eq!(service.ready().await?.call("ada").await?, "hello, ada");
//! assert_eq!(start.elapsed(), from_ms(21 + 15));
//! # Ok(())
//! # }
//! ```
//!
//! # When hedges go out
//!
//! | trigger | hedges | extra load |
//! |---|---|---|
//! | [`fixed(d)`](HedgeLayerBuilder::fixed) | hedge k at k · d after the call's start, `max_hedges` of them, 1 by default | the share of answers slower than d |
//! | [`delays([..])`](HedgeLayerBuilder::delays) | one at each offset from the call's start | the share of answers slower than each |
//! | [`fan_out(n)`](HedgeLayerBuilder::fan_out) | n − 1 at once with the first | n − 1 for every call |
//!
//! A delay helps when answers that are late at that point would mostly come sooner from a second attempt. Where the slow
//! answers are slow for a reason that the second attempt shares, hedging only adds load.
//!
//! # The rules of the race
//!
//! - The first *good* answer wins: one that a retry would not repeat. For HTTP that leaves out 408, 425, 429, 500, 502, 503,
//!   504 and errors.
//! - A failure does not end a race that others still run. If all fail, the first attempt's outcome is returned, as it is.
//! - A failure before any hedge is out is returned at once: repeating is a retry layer's business.
//! - Losers are dropped the moment the winner is known. Over HTTP/1 that closes a connection, over HTTP/2 it resets a stream.
//! - A hedge whose service is not ready delays nothing and costs nothing; one that the budget denies neither.
//! - Over HTTP, a request that is a hedge already is not hedged again by a layer below, and no hedge goes out at or after a
//!   request's [`Deadline`].
//!
//! A body that streams is recorded while it is sent, up to [`replay_limit`](HedgeLayerBuilder::replay_limit), and each
//! attempt reads all of it. When it turns out to be longer, the oldest attempt goes on with it and the others are cancelled.
//!
//! A first attempt that fails leaves the call to its hedges, however long they take: put a timeout for one attempt below.
//!
//! # Where it goes
//!
//! ```text
//! retry                         repeats what still fails
//!   hedge                       each try is a race
//!     timeout for one attempt   a stalled attempt ends some time
//!       client
//! ```
//!
//! With a retry layer above, both should draw on one [`Budget`]: the retry takes it with `.budget(b.clone())`, the hedge with
//! [`shared_budget(b)`](HedgeLayerBuilder::shared_budget).
//!
//! # Watching and changing it
//!
//! The HTTP response of a hedged call has a [`HedgeInfo`] in its extensions. An [`Observer`] is told of every attempt, refusal and end. A [`HedgeHandle`] changes trigger and budget while the service
//! runs.
//!
//! # Cost
//!
//! A call that is not hedged pays for the copy of its request and of the service, one reading of the clock, and tokio's timer
//! if it does not answer at its first poll: no allocation of ours, no lock of ours, no boxed future. A hedge boxes its future.
//! A request that may not be hedged costs no copy.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `http` (default) | the rules for HTTP |
//! | `axum-08`, `tonic-014`, `reqwest-013` | requests with the bodies of axum 0.8, tonic 0.14 and reqwest 0.13 can be hedged |
//!
//! A feature only adds; none changes what the others do. The minimum supported Rust version is 1.88.
//!
//! # Limits of this version
//!
//! Triggers are fixed: none is learned from live latency yet. gRPC has no rules of its own, and its calls are POSTs, so they
//! pass through as they are.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod class;
mod counters;
mod elsewhere;
mod estimator;
mod future;
mod guard;
mod handle;
mod histogram;
mod info;
mod key;
mod layer;
mod losers;
mod observe;
mod options;
mod service;
mod settings;
mod trigger;

pub use tower_attempt::{
    Attempt, AttemptKind, Budget, BuildError, Classify, Deadline, EveryError, Plain, Replays,
    RetryReason, Rules, Verdict,
};
#[cfg(feature = "http")]
pub use tower_attempt::{Http, HttpClassify, HttpOutcome, ReplayBody, ReplayableBody, Standard};

pub use self::counters::HedgeCounts;
#[cfg(feature = "http")]
pub use self::elsewhere::UsedEndpoints;
pub use self::future::ResponseFuture;
pub use self::handle::HedgeHandle;
pub use self::info::HedgeInfo;
pub use self::layer::{HedgeLayer, HedgeLayerBuilder};
#[cfg(feature = "drain")]
pub use self::losers::Drain;
#[cfg(feature = "metrics")]
pub use self::observe::MetricsObserver;
#[cfg(feature = "tracing")]
pub use self::observe::TracingObserver;
pub use self::observe::{NoObserver, Observer, SkipReason};
pub use self::service::Hedge;
pub use self::settings::Mode;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
