//! Hedged requests for any [tower](https://docs.rs/tower) service: if a response is late, the layer sends the request
//! again, takes the first good response and cancels the other attempts. In Google's experiment, hedges added 2 % more
//! requests. They cut the 99.9th percentile of a fan-out over 1,000 keys from 1,800 ms to 74 ms (Dean and Barroso, *The
//! Tail at Scale*, 2013).
//!
//! # Quick start
//!
//! The default layer for HTTP hedges the slowest 5 % of GET, HEAD, OPTIONS, TRACE and QUERY requests, once each, within
//! a budget of 5 % extra load.
//!
//! ```
//! use bytes::Bytes;
//! use http::Request;
//! use http_body_util::Full;
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_hedge_latency::HedgeLayer;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tower::BoxError> {
//! # let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
//! # let url = format!("http://{}/", listener.local_addr().unwrap());
//! # std::thread::spawn(move || {
//! #     let (mut socket, _) = listener.accept().unwrap();
//! #     let _ = std::io::Read::read(&mut socket, &mut [0; 1024]).unwrap();
//! #     std::io::Write::write_all(&mut socket, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
//! # });
//! let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
//! let client = ServiceBuilder::new().layer(HedgeLayer::http()).service(client);
//! let response = client.oneshot(Request::get(url).body(Full::default())?).await?;
//! assert_eq!(response.status(), 200);
//! # Ok(())
//! # }
//! ```
//!
//! A service with any other request that is `Clone`:
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
//! // Offsets from the start of the call.
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
//! # Which trigger
//!
//! | trigger | hedges | extra load | use it for |
//! |---|---|---|---|
//! | [`percentile(q)`](HedgeLayerBuilder::percentile), the default | hedge k at k times the q-quantile of latency | 1 − q, within the budget | services whose latency changes or is unknown |
//! | [`fixed(d)`](HedgeLayerBuilder::fixed) | hedge k at k · d | the share of responses slower than d | a known, stable latency |
//! | [`delays([..])`](HedgeLayerBuilder::delays) | one at each offset | the share of responses slower than each | the same, with several hedges |
//! | [`fan_out(n)`](HedgeLayerBuilder::fan_out) | n − 1, concurrent with the first attempt | n − 1 for every call | few calls that must not be late |
//!
//! A hedge helps if a second attempt would answer sooner. Choose 1 − q above the share of slow responses: the 95th
//! percentile if fewer than 5 % are slow. The [guide] explains how the percentile is learned.
//!
//! # Which budget
//!
//! A [`Budget`] bounds the extra load when a service suddenly slows down. With a percentile it is on by default: 1 − q
//! of the calls that may be hedged and succeed, with 10 tokens at first and a burst of 100. Other triggers have no
//! budget by default.
//!
//! # Failures and losers
//!
//! - The first *good* response wins. Retryable failures, such as the statuses 408, 425, 429, 500, 502, 503 and 504, do
//!   not win while another attempt is in flight. If all attempts fail that way, the caller receives the first attempt's
//!   outcome.
//! - A failure that is not retryable ends the race, and the caller receives it.
//! - By default, a failure before any hedge is returned immediately, because retries belong to a retry layer.
//! - Losers are dropped when the winner is known, or end in the background with the setting `drain`.
//! - By default, HTTP hedges only safe methods. gRPC hedges only methods declared idempotent.
//! - A hedge waits until its service is ready. It is not sent if the budget has no token.
//!
//! The [guide] has the other rules of the race.
//!
//! Inside `tokio::spawn`, call a service with boxed errors as `service.ready().await?.call(request).await`.
//! `service.oneshot(request)` does not compile there, as with tower's `Timeout`, unless a `BoxCloneService` wraps the
//! layer.
//!
//! # Overrides
//!
//! A [`HedgeOverride`] in the extensions of an HTTP or gRPC request replaces settings for that request. It cannot reach
//! `reqwest::Request`, whose extensions are private. For requests of other services,
//! [`RequestRule::hedge_override`] chooses the override.
//!
//! ```
//! use std::time::Duration;
//! use tower_hedge_latency::HedgeOverride;
//!
//! # let (mut export, mut report) = (http::Request::new(()), http::Request::new(()));
//! export.extensions_mut().insert(HedgeOverride::disabled());
//! let slow = HedgeOverride::new().delay(Duration::from_secs(1));
//! report.extensions_mut().insert(slow);
//! # assert_eq!(report.extensions().get(), Some(&slow));
//! ```
//!
//! # Layer order
//!
//! ```text
//! retry                         retries calls that still fail
//!   hedge                       each attempt is a race
//!     timeout for one attempt   ends a stalled attempt
//!       client
//! ```
//!
//! The retry layer and the hedge layer draw on one [`Budget`]. The retry layer takes it with `.budget(b.clone())`, the
//! hedge layer with [`shared_budget(b)`](HedgeLayerBuilder::shared_budget).
//!
//! # Observation
//!
//! The HTTP response of a hedged call has a [`HedgeInfo`] in its extensions. An [`Observer`] receives every attempt,
//! every hedge that is due but not sent, and the end of each call; `MetricsObserver` and `TracingObserver` are ready
//! observers. A [`HedgeHandle`] reads counts and learned delays, changes settings, and switches hedging off or to a
//! [`Mode::Shadow`] that only counts.
//!
//! # Cost
//!
//! With the defaults and a body in memory, a call that is not hedged copies its request and the service. It performs a
//! few atomic operations, and reads the clock once or twice. It uses a timer unless its first poll returns the
//! response. The layer makes no further allocation, takes no lock and boxes no future. A call with a request of one
//! integer takes about 0.06 µs without the timer and 0.15 µs with it (`benches`, on a shared EPYC). Each class takes
//! 16 KB.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `http` (default) | the rules for HTTP |
//! | `grpc` | the rules for gRPC |
//! | `hyper-util-01` | recognises the errors of hyper-util 0.1's client, hyper 1 and h2 0.4: see [`Http`] |
//! | `tonic-014`, `reqwest-013` | the same for the errors and bodies of tonic 0.14 and reqwest 0.13 |
//! | `axum-08` | requests with the bodies of axum 0.8 can be hedged |
//! | `drain` | `Drain`: losers end in the background |
//! | `tracing`, `metrics` | `TracingObserver`, `MetricsObserver` |
//!
//! Features are additive. Only `tonic-014` and `reqwest-013` enable HTTP protocols of their clients. The minimum
//! supported Rust version is 1.88.
// The documentation describes all features, so without `grpc` some of its links lead nowhere.
#![cfg_attr(not(feature = "grpc"), allow(rustdoc::broken_intra_doc_links))]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod class;
mod counters;
mod destination;
mod estimator;
mod future;
mod guard;
pub mod guide;
mod handle;
mod histogram;
mod info;
mod layer;
mod losers;
mod quantile;
mod service;
mod settings;
mod trigger;

#[cfg(feature = "metrics")]
pub use tower_attempt::MetricsObserver;
#[cfg(feature = "tracing")]
pub use tower_attempt::TracingObserver;
pub use tower_attempt::{
    Attempt, AttemptKind, AttemptOutcome, AttemptScope, Budget, Budgets, BuildError, ByKey,
    CallInfo, Classify, ClassifyFn, Deadline, DelaySource, Elapsed, Event, EveryError, Generic,
    HedgeOverride, Hint, LayerKind, Mode, NoObserver, Observed, Observer, OneClass, RequestRule,
    RetryIf, RetryReason, SkipReason, StopReason, Verdict,
};
#[cfg(feature = "http")]
pub use tower_attempt::{
    Dialect, Http, HttpOutcome, OutcomeView, ReplayBody, ReplayableBody, RequestHead,
};
#[cfg(feature = "grpc")]
pub use tower_attempt::{Grpc, GrpcCode, GrpcOutcome};

pub use self::counters::HedgeCounts;
pub use self::destination::{Alternates, Anywhere};
#[cfg(feature = "http")]
pub use self::destination::{Chosen, Spread, UsedEndpoints};
pub use self::future::ResponseFuture;
pub use self::handle::HedgeHandle;
pub use self::info::HedgeInfo;
pub use self::layer::{HedgeLayer, HedgeLayerBuilder};
pub use self::losers::Cancel;
#[cfg(feature = "drain")]
pub use self::losers::Drain;
pub use self::service::Hedge;

#[cfg(all(doctest, feature = "metrics", feature = "tracing"))]
#[doc = include_str!("../README.md")]
struct Readme;
