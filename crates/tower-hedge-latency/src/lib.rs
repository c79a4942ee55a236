//! Hedged requests for any [tower](https://docs.rs/tower) service: when an answer is late, send the request again, take the
//! first good answer and cancel the rest. It turns the latency tail of a service with spare capacity into a little extra
//! load: in Google's experiment, 2 % more requests took the 99.9th percentile of a fan-out over 1,000 keys from 1,800 ms to
//! 74 ms (Dean and Barroso, *The Tail at Scale*, 2013).
//!
//! # Five minutes
//!
//! For HTTP there is nothing to decide at first: requests of safe methods (GET, HEAD, OPTIONS, TRACE, QUERY) are sent again
//! when they take longer than 95 of 100 recent ones, once each, and no more than 5 % of them.
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
//! # Which trigger
//!
//! | trigger | hedges | extra load | for |
//! |---|---|---|---|
//! | [`percentile(q)`](HedgeLayerBuilder::percentile), the default | hedge k at k times the time that a share q of the calls takes at most | 1 − q, within the budget | services whose latency changes, or that you have not measured |
//! | [`fixed(d)`](HedgeLayerBuilder::fixed) | hedge k at k · d after the call's start | the share of answers slower than d | a latency that you know and that stays |
//! | [`delays([..])`](HedgeLayerBuilder::delays) | one at each offset from the call's start | the share of answers slower than each | the same, with several hedges |
//! | [`fan_out(n)`](HedgeLayerBuilder::fan_out) | n − 1 at once with the first | n − 1 for every call | few calls that must not be late, and capacity to spare |
//!
//! A hedge helps when an answer that is late at that point would come sooner from a second attempt. It can't where the
//! slow answers are slow for a reason that the second attempt shares: then it only adds load, and
//! [`spread`](HedgeLayerBuilder::spread) or [`alternates`](HedgeLayerBuilder::alternates), which send it elsewhere, may help.
//!
//! Nor can a percentile help that is too high. If 3 % of the answers take 115 ms and the others 15 ms, the 95th percentile
//! lies right above 15 ms, and a hedge that is sent then answers at 30 ms. The 99th lies at 115 ms, among the slow answers: a
//! hedge that is sent then comes too late. So 1 − q should be more than the share of the slow mode. Where hedges do not win,
//! the layer notices: after fewer than 2 % wins over 200 hedges it sends half as many, down to 1 in 100, and more
//! again when wins return.
//!
//! ## How a percentile is learned
//!
//! Attempts that lose are cancelled, so what they would have taken is never seen. What is recorded of a call is how long its
//! *first* attempt was out when the call ended, if it succeeded or was past the trigger already, and whether it had ended by
//! itself or a hedge had overtaken it. One that was overtaken would have taken longer, and counts as those that did (Kaplan and
//! Meier's estimate). So the share of hedged calls is the one that was asked for, in this crate's tests within a tenth of
//! it, whoever wins. What the winner took, or only what was not hedged, would count late calls as early ones, and the trigger
//! would fall and fall. The estimator ignores failures and callers that
//! leave before the trigger: a call that a layer below rejects says nothing about the server's latency. Where more than 1 − q of the first
//! attempts never end, no trigger is late enough: it rises slowly, up to [`max_delay`](HedgeLayerBuilder::max_delay).
//!
//! It is another where latencies lump together. Where more than a quarter of the calls take the same time to within 1/32, the trigger
//! lies right after them, and fewer are hedged: none if all do. And where it lies in a narrower lump, such as a timeout that a
//! tenth of the calls run into, all or none of those may be late; then the budget is the bound. With a long tail and so few
//! calls that a window has hardly more than its least number, a 99th percentile hedges about an eighth more than it should, and
//! a 99.9th a third.
//!
//! Times are kept in buckets of 1/32 of their size, over the current [`window`](HedgeLayerBuilder::window) of 10 s and the one before.
//! Of services with very many calls, some 4,000 a second at the 95th percentile, only a share is looked at, down to 1 in 16.
//! There is no threshold before `max(100, 10 ÷ (1 − q))` calls, 200 at the 95th percentile; until then calls are not hedged, or
//! after [`initial_delay`](HedgeLayerBuilder::initial_delay). A service that gets three times slower is followed within 20 s, or
//! in some three minutes where hedges answer at once, so that nothing is seen beyond the trigger; one without calls keeps its threshold. Where some requests take much longer than others, give each class a
//! [`key`](HedgeLayerBuilder::key).
//!
//! # Which budget
//!
//! A percentile bounds the extra load while latencies are what they were; a [`Budget`] bounds it in any case, also when a
//! service gets slow all at once and every call is late. The default is 1 − q of the calls that may be
//! hedged and succeed, with 10 tokens at first and 100 saved up at most. `Budget::ratio(0.02)` moves the default percentile
//! up to the 98th, so that the tokens go to the slowest calls; a percentile that is set and a smaller ratio that is set
//! contradict each other, which is an error of `build`. A budget with `per_second` tokens lets services with few calls hedge more. Fixed triggers have no
//! budget unless you set one.
//!
//! # The rules of the race
//!
//! - The first *good* answer wins: one that a retry would not repeat. For HTTP that leaves out 408, 425, 429, 500, 502, 503,
//!   504 and errors.
//! - A failure does not end a race that others still run. If all fail, the first attempt's outcome is returned, as it is.
//! - A failure before any hedge is out is returned at once: repeating is a retry layer's business. With
//!   [`hedge_on_failure`](HedgeLayerBuilder::hedge_on_failure) the next hedge follows it at once.
//! - Losers are dropped the moment the winner is known. Over HTTP/1 that closes a connection, over HTTP/2 it resets a stream;
//!   with the feature `drain` they may end in the background. Above a balancer by latency (`PeakEwma`) drain them: a dropped
//!   loser makes a slow endpoint look fast, which took the 99th percentile from 20 to 36 ms.
//! - A hedge whose service is not ready delays nothing and costs nothing; one that the budget denies neither.
//! - A tie goes to the oldest attempt. Latency is judged at the response's head.
//! - Over HTTP, only safe methods are hedged: the second of two DELETEs answers 404 and may win, and a cancelled PUT may arrive
//!   after the caller's next one. [`hedge_if`](HedgeLayerBuilder::hedge_if) narrows this, and
//!   [`hedge_unsafe_if`](HedgeLayerBuilder::hedge_unsafe_if) adds requests. Over gRPC, only methods declared idempotent are hedged.
//! - Over HTTP, a request that is a hedge already is not hedged again: not by a layer below, which sees the [`Attempt`] in its
//!   extensions, and not by the next server, which sees its field `x-hedge-attempt`. No hedge goes out at or after a
//!   request's [deadline](HedgeOverride::deadline).
//!
//! A body that streams is recorded while it is sent, up to [`replay_limit`](HedgeLayerBuilder::replay_limit), and each
//! attempt reads all of it. When it turns out to be longer, the oldest attempt goes on with it and the others are cancelled.
//!
//! A service that boxes its errors is called inside `tokio::spawn` with `service.ready().await?.call(request).await`.
//! `service.oneshot(request)` over boxed errors does not compile there, as it does not with tower's `Timeout`: put a
//! `BoxCloneService` around the layer.
//!
//! A first attempt that fails leaves the call to its hedges, however long they take: put a timeout for one attempt below.
//!
//! # One request that differs
//!
//! A [`HedgeOverride`] in the extensions of an HTTP or gRPC request replaces settings of the layer for that request:
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
//! Budget, mode, and the rules on what is safe to hedge hold for such a request, too. Below a retry layer the override applies
//! to each attempt. It cannot reach a layer over `reqwest::Request`, which keeps its extensions private. Requests of your own
//! choose theirs in [`RequestRule::hedge_override`].
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
//! [`shared_budget(b)`](HedgeLayerBuilder::shared_budget). For one budget per destination there are
//! [`budget_by`](HedgeLayerBuilder::budget_by) and [`shared_budget_by`](HedgeLayerBuilder::shared_budget_by).
//!
//! # Watching and changing it
//!
//! The HTTP response of a hedged call has a [`HedgeInfo`] in its extensions. An [`Observer`] receives every
//! attempt with its outcome, the hedges that are due but not sent, and one end of each call with the attempt that won;
//! `MetricsObserver` and `TracingObserver` are ready ones. A [`HedgeHandle`] counts, returns the learned delays, changes single settings while the service runs, and switches hedging off or to a [`Mode::Shadow`] that only
//! counts what would have been sent.
//!
//! # Cost
//!
//! A call that is not hedged pays for the copy of its request and of the service, a handful of atomic operations, one reading of
//! the clock (two with a percentile, for those calls that are looked at), and tokio's timer if it does not answer at its first
//! poll: no allocation of ours, no lock of ours, no boxed future. That is about 0.06 µs without the timer and 0.16 µs with it
//! (`benches`, on a shared Xeon). A hedge boxes its future. A request that may not be hedged, or for which no delay is known
//! yet, costs no copy. Each class takes 16 KB, so all take 4 MB
//! at most; a layer without keys has one.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `http` (default) | the rules for HTTP |
//! | `grpc` | the rules for gRPC: `HedgeLayer::grpc` hedges the methods that it is given |
//! | `hyper-util-01` | the errors of hyper-util 0.1's client, hyper 1 and h2 0.4 are recognised: see [`Http`] |
//! | `tonic-014`, `reqwest-013` | the same, for the errors and bodies of tonic 0.14 and of reqwest 0.13 |
//! | `axum-08` | requests with the bodies of axum 0.8 can be hedged |
//! | `drain` | `Drain`: losers end in the background |
//! | `tracing` | an observer that writes log lines and spans, `TracingObserver` |
//! | `metrics` | an observer that records metrics, `MetricsObserver` |
//!
//! A feature only adds; none changes what the others do. None enables HTTP/1 or HTTP/2 in the servers of the same build,
//! except that `tonic-014` and `reqwest-013` need the protocols of these clients. The minimum supported Rust version is 1.88.
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
mod options;
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
