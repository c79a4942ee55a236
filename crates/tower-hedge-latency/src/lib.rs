//! Hedged requests for any [tower](https://docs.rs/tower) service: if a response is late, the layer sends the request
//! again, takes the first good response and cancels the other attempts. In Google's experiment, 2 % more requests cut
//! the 99.9th percentile of a fan-out over 1,000 keys from 1,800 ms to 74 ms (Dean and Barroso, *The Tail at Scale*,
//! 2013).
//!
//! # Quick start
//!
//! The default layer for HTTP hedges the slowest 5 % of GET, HEAD, OPTIONS, TRACE and QUERY requests, once each, within a
//! budget of 5 % extra load.
//!
//! ```
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use tower::ServiceBuilder;
//! use tower_hedge_latency::HedgeLayer;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
//! let client = ServiceBuilder::new().layer(HedgeLayer::http()).service(client);
//! # let _ = client;
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
//! A hedge helps if a second attempt would answer sooner. If both attempts share the cause of the delay, a hedge only adds
//! load. [`spread`](HedgeLayerBuilder::spread) and [`alternates`](HedgeLayerBuilder::alternates) send hedges to other
//! endpoints.
//!
//! A percentile can be too high. If 3 % of the responses take 115 ms and the others 15 ms, the 95th percentile lies right
//! above 15 ms, and a hedged call takes 30 ms. The 99th lies at 115 ms, so its hedges come too late. Choose 1 − q above the
//! share of the slow responses. If fewer than 2 % of 200 hedges win, the layer halves the share of due hedges that it
//! sends, down to 1 in 100. It sends more when hedges win again.
//!
//! ## How a percentile is learned
//!
//! - The layer records the time in flight of the *first* attempt, if the call succeeded or was past the trigger. If a hedge
//!   overtook the attempt, its latency is only known to be longer (Kaplan and Meier's estimate). So hedges do not bias the
//!   trigger: in this crate's tests the hedged share is within a tenth of 1 − q.
//! - The layer ignores a call that fails, or that its caller drops, before the trigger.
//! - If more than 1 − q of the first attempts never end, the trigger rises slowly, up to
//!   [`max_delay`](HedgeLayerBuilder::max_delay).
//! - If more than a quarter of the calls take the same time to within 1/32, the trigger lies right after them, and
//!   fewer calls are hedged. In a narrower cluster, such as a common timeout, all or none of the calls may be late;
//!   then the budget is the bound.
//! - Samples cover the current [`window`](HedgeLayerBuilder::window) of 10 s and the previous one. At high rates, above
//!   about 4,000 calls per second, the layer samples down to 1 call in 16.
//! - The first trigger needs `max(100, 10 ÷ (1 − q))` calls. Until then hedges are sent after
//!   [`initial_delay`](HedgeLayerBuilder::initial_delay), or not at all if it is not set.
//! - The trigger follows a threefold slowdown within 20 s, or within three minutes if hedges answer immediately.
//! - [`key`](HedgeLayerBuilder::key) learns a percentile for each class of requests.
//!
//! # Which budget
//!
//! A percentile bounds the extra load while latencies are stable. A [`Budget`] bounds it also when a service suddenly
//! slows down. The default is 1 − q of the eligible calls that succeed, with 10 tokens at first and a burst of 100.
//! With `Budget::ratio(0.02)` the default percentile rises to the 98th, so that the slowest calls receive the tokens.
//! An explicit percentile that an explicit ratio cannot pay for is an error of `build`. Other triggers have no budget
//! by default.
//!
//! # The rules of the race
//!
//! - The first *good* response wins. Errors and the statuses 408, 425, 429, 500, 502, 503 and 504 do not win while another
//!   attempt is in flight. If all attempts fail, the caller receives the outcome of the first attempt.
//! - A failure before any hedge is returned immediately, because retries belong to a retry layer. With
//!   [`hedge_on_failure`](HedgeLayerBuilder::hedge_on_failure) the next hedge follows immediately.
//! - Losers are dropped when the winner is known. Over HTTP/1 that closes a connection, over HTTP/2 it resets a stream.
//!   With the feature `drain` they end in the background. Drain losers above a balancer by latency (`PeakEwma`):
//!   dropped losers make a slow endpoint look fast.
//! - A hedge is not sent if its service is not ready, or if the budget has no token.
//! - A tie goes to the oldest attempt. Only the response head is classified.
//! - HTTP hedges only safe methods: the second of two DELETEs answers 404 and may win.
//!   [`hedge_if`](HedgeLayerBuilder::hedge_if) narrows this, and [`hedge_unsafe_if`](HedgeLayerBuilder::hedge_unsafe_if)
//!   widens it. gRPC hedges only methods declared idempotent.
//! - A hedge is never hedged again: layers below read the [`Attempt`] in its extensions, other servers the header
//!   `x-hedge-attempt`. No hedge is sent after a request's [deadline](HedgeOverride::deadline).
//! - A streaming body is recorded up to [`replay_limit`](HedgeLayerBuilder::replay_limit). If it is longer, the oldest
//!   attempt continues and the others are cancelled.
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
//! # Where it goes
//!
//! ```text
//! retry                         retries calls that still fail
//!   hedge                       each attempt is a race
//!     timeout for one attempt   ends a stalled attempt
//!       client
//! ```
//!
//! Both layers draw on one [`Budget`]: the retry layer takes it with `.budget(b.clone())`, the hedge layer with
//! [`shared_budget(b)`](HedgeLayerBuilder::shared_budget).
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
//! A call that is not hedged copies its request and the service, performs a few atomic operations, reads the clock once
//! or twice, and uses a timer if it does not answer at its first poll: no further allocation, no lock, no boxed future.
//! That is about 0.06 µs without the timer and 0.16 µs with it (`benches`, on a shared Xeon). Each class takes 16 KB.
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
//! Features are additive. Only `tonic-014` and `reqwest-013` enable HTTP protocols of their clients. The minimum supported
//! Rust version is 1.88.
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
pub use self::elsewhere::{Alternates, Anywhere};
#[cfg(feature = "http")]
pub use self::elsewhere::{Chosen, Spread, UsedEndpoints};
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
