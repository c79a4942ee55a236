//! Retries for any [tower](https://docs.rs/tower) service, on either side of the wire: what is safe to repeat is repeated,
//! after an exponential backoff with jitter, within a budget that keeps a failing backend from being buried.
//!
//! # Five minutes
//!
//! For HTTP there is nothing to decide at first. The errors of a client are recognised with that client's feature, here
//! `hyper-util-01`:
//!
//! ```toml
//! tower-jitter-retry = { version = "0.1", features = ["hyper-util-01"] }
//! ```
//!
//! ```
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use tower::ServiceBuilder;
//! use tower_jitter_retry::RetryLayer;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
//! let client = ServiceBuilder::new().layer(RetryLayer::http()).service(client);
//! # let _ = client;
//! # }
//! ```
//!
//! Any other service, with any request that is `Clone`; an `Err` is a failure and an `Ok` is not:
//!
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
//! use std::time::Duration;
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//! use tower_jitter_retry::{Backoff, Budget, Jitter, RetryLayer};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), tower::BoxError> {
//! let layer = RetryLayer::builder()
//!     .max_attempts(4)
//!     .backoff(Backoff::exponential(Duration::from_millis(50), Duration::from_secs(20)).jitter(Jitter::Decorrelated))
//!     .budget(Budget::ratio(0.2))
//!     .build()?;
//!
//! static CALLS: AtomicU32 = AtomicU32::new(0);
//! let flaky = service_fn(|name: &'static str| async move {
//!     match CALLS.fetch_add(1, Relaxed) {
//!         0 | 1 => Err("busy"),
//!         _ => Ok(format!("hello, {name}")),
//!     }
//! });
//! let mut service = ServiceBuilder::new().layer(layer).service(flaky);
//! assert_eq!(service.ready().await?.call("ada").await?, "hello, ada");
//! # Ok(())
//! # }
//! ```
//!
//! The delays by themselves, without tower:
//!
//! ```
//! use std::time::Duration;
//! use tower_jitter_retry::{Backoff, Jitter};
//!
//! let (base, cap) = (Duration::from_millis(100), Duration::from_secs(20));
//! let delays: Vec<Duration> = Backoff::exponential(base, cap).jitter(Jitter::Full).seed(7).schedule().take(5).collect();
//! assert!(delays.iter().all(|delay| *delay <= cap));
//! ```
//!
//! # What is repeated
//!
//! | outcome of an HTTP request | GET, HEAD, OPTIONS, TRACE, QUERY, PUT, DELETE, or with `Idempotency-Key` | POST, PATCH, … |
//! |---|---|---|
//! | 429 | after a backoff from 1 s, not before the server's hint | the same: a refusal comes before the work ([but](RetryLayerBuilder::retry_429_for_idempotent_only)) |
//! | 503 with a `Retry-After` above 0 | after a backoff from 1 s, not before the server's hint | no |
//! | 408, 425, 500, 502, 503, 504 | yes | no |
//! | proof that the server did not process it: a stale pooled connection, HTTP/2's REFUSED_STREAM and GOAWAY | yes, the first time immediately and for free | the same |
//! | no connection: refused, timed out, no address | yes, after a backoff and with a token from the budget | the same |
//! | a layer below rejected it and names a wait: a `ThrottleLayer` of `tower-dist-ratelimit` | yes, not before the wait is over | the same |
//! | a layer below rejected it and names no wait: tower's `LoadShed` and `Buffer` | no | no |
//! | an error of the request's own body | no | no |
//! | any other error of the client | yes | no |
//! | anything else | no | no |
//!
//! `Retry-After`, in seconds or as a date, is a floor for the delay, with up to a tenth more by chance; on a 429 without
//! one, the IETF's `RateLimit` field serves. When the wait is longer than `max_retry_after`, the answer is returned. CONNECT and
//! requests with `Upgrade` are never repeated, and a 101 is an answer like any other. An answer is judged by its head: a
//! body that breaks later is the caller's.
//!
//! Proof is found in the errors of `std::io`, and with the features `hyper-util-01`, `reqwest-013` and `tonic-014` in the errors of
//! hyper, hyper-util, h2, reqwest and tonic, also boxed and as the source of another. Any other error proves nothing; an error of your own that wraps one and is not boxed proves nothing. An answer is taken as one to the request
//! that went in. A service below that sends requests of its own breaks that: one that follows redirects, one that fails
//! over, a handler that calls others after it has acted and lets their errors out as its own. Put the layer below such a
//! service, or have [`classify`](RetryLayerBuilder::classify) make [`Verdict::Unprocessed`] fatal. reqwest follows redirects by default and its errors don't
//! say of which request they are, so none of them is proof, unless the client follows none and the layer
//! [knows it](RetryLayerBuilder::without_redirects).
//!
//! A rejection by a layer of this process is recognised as a [`Rejected`] in boxed errors and their sources, and in the
//! unboxed errors of `tower-dist-ratelimit` (feature `attempt`, on by default). tower's and tower-resilience's rejections
//! are recognised by their texts, and only in boxed errors: `.map_err(BoxError::from)` below the retry layer. Its wait is
//! obeyed like a server's, up to `max_retry_after` and before the deadline; otherwise the caller gets the rejection. The same holds
//! where a rule of your own asks for the retry, unless the rule names a wait: `Verdict::transient().after(wait)`.
//!
//! A body is sent again, whether it is in memory or streams: what streams is recorded while it is sent, up to
//! [`replay_limit`](RetryLayerBuilder::replay_limit). Once an attempt has read more than that, the request is not resent and
//! its failure is returned. Bodies of any other type, such as a server's `Incoming`, become repeatable as a [`ReplayBody`].
//!
//! A POST becomes as repeatable as a PUT with an `Idempotency-Key`, if the server honours it; the layer can
//! [generate one](RetryLayerBuilder::generate_idempotency_key). [`idempotent_if`](RetryLayerBuilder::idempotent_if) declares
//! further requests idempotent, such as a POST that only reads.
//!
//! [`classify`](RetryLayerBuilder::classify) has the last word on what an outcome means, where your service differs from the
//! table. It has none on what is safe: a POST that got a 404 is sent once, even if the rule calls the 404 transient. A resend
//! takes an idempotent request, proof that the server did not process it, or a 429.
//!
//! [`RetryLayer::grpc`] goes by gRFC A6. It retries after a server's pushback, to the millisecond, and after proof that the
//! server did not process the call. UNAVAILABLE and broken connections are retried for the methods that you declare
//! [idempotent](RetryLayerBuilder::idempotent_methods), as a service config does in gRPC's own libraries. Each attempt carries
//! the remaining time of a `grpc-timeout`. See [`Grpc`].
//!
//! For a service of your own, [`retry_if`](RetryLayerBuilder::retry_if) tells which outcomes to retry, and
//! [`classify_with`](RetryLayerBuilder::classify_with) takes a rule that also looks at the request.
//!
//! # Defaults
//!
//! | setting | default | why |
//! |---|---|---|
//! | `max_attempts` | 3 in all | AWS SDKs, Google's SRE book: what two repeats don't mend, ten won't either |
//! | `backoff` | 100 ms · 2ⁿ up to 20 s, full jitter; 1 s · 2ⁿ for 429 and hinted 503 | AWS SDKs: full jitter has the fewest calls for its completion time |
//! | `budget` | 20 % of successful calls + 10 per second, burst 100 | Finagle, linkerd2: when everything fails, the load grows by a fifth and not threefold |
//! | `max_retry_after` | 60 s | nobody waits longer |
//! | `replay_limit` | 64 KiB of a body that streams | linkerd2 |
//! | `retry_until`, `attempt_timeout`, `deadline` | no limit; a request's own [`RetryOverride`] is honoured | only you know what your callers wait for |
//!
//! Every answer that stops a call comes back untouched: when attempts or budget run out, the caller sees the last attempt's
//! own response or error, and no error type changes.
//!
//! # Time limits
//!
//! | | ends what is in flight | the caller gets |
//! |---|---|---|
//! | [`retry_until`](RetryLayerBuilder::retry_until), [`RetryOverride::deadline`] | no | the failure whose repeat would come too late, without a wait |
//! | [`attempt_timeout`](RetryLayerBuilder::attempt_timeout) | the attempt, which is repeated if the request is idempotent | the last attempt's timeout |
//! | [`deadline`](RetryLayerBuilder::deadline) | the call | a timeout |
//!
//! The last two create an outcome that the service did not have. What it looks like is up to the service's error type (see
//! [`TimeoutAnswer`]: an error where errors are boxed, a 504 for axum and reqwest, DEADLINE_EXCEEDED over gRPC) or to an
//! [`on_timeout`](RetryLayerBuilder::on_timeout) closure. For hyper-util's client, whose error can't be made and whose
//! response can't either, box the error: `.layer(retry).map_err(BoxError::from).service(client)`.
//!
//! A service that boxes its errors is called inside `tokio::spawn` with `service.ready().await?.call(request).await`. Two forms
//! do not compile there, as they do not with tower's `Timeout`: `service.oneshot(request)` over boxed errors, and tower's own
//! `Retry` above this one. Put a `BoxCloneService` around the layer for these.
//!
//! With `attempt_timeout` a stalled attempt leaves time for the next, which a timeout above the layer does not. tower's
//! `Timeout` does the same below the layer, for one more box around each error. The limits of
//! a [`RetryOverride`] win over those of the layer. In a layer with `attempt_timeout` or `deadline`, the deadline of the
//! override also ends an attempt in flight.
//!
//! # One request that differs
//!
//! A [`RetryOverride`] in the extensions of an HTTP or gRPC request replaces settings of the layer for that request:
//!
//! ```
//! use std::time::Duration;
//! use tower_jitter_retry::{Deadline, RetryOverride};
//!
//! # let (mut order, mut report) = (http::Request::new(()), http::Request::new(()));
//! order.extensions_mut().insert(RetryOverride::disabled());
//! let patient = RetryOverride::new().max_attempts(5).deadline(Deadline::after(Duration::from_secs(2)));
//! report.extensions_mut().insert(patient);
//! # assert_eq!(report.extensions().get(), Some(&patient));
//! ```
//!
//! Budget, mode, and the rules on what is safe to resend hold for such a request, too. The override applies to all retry
//! layers that the request passes. It cannot reach a layer over `reqwest::Request`, which keeps its extensions private.
//! Requests of your own choose theirs in [`RequestRule::retry_override`].
//!
//! # Where it goes
//!
//! ```text
//! retry, with a deadline and a timeout for each attempt     waits with nothing in flight and no permit held
//!   hedge                                                   each try is a race
//!     rate or concurrency limit                             counts every attempt
//!       client
//! ```
//!
//! ```
//! use std::time::Duration;
//! use tower::{BoxError, ServiceBuilder, service_fn};
//! use tower_jitter_retry::RetryLayer;
//!
//! # fn main() -> Result<(), BoxError> {
//! # let client = service_fn(|_: http::Request<()>| async { Ok::<_, BoxError>(http::Response::new(())) });
//! let retry = RetryLayer::builder()
//!     .http()
//!     .attempt_timeout(Duration::from_millis(500)) // the slowest good answers
//!     .deadline(Duration::from_secs(2)) // what the caller waits
//!     .build()?;
//! let service = ServiceBuilder::new().layer(retry).concurrency_limit(100).service(client);
//! # let _ = service;
//! # Ok(())
//! # }
//! ```
//!
//! Retry layers above each other do not multiply their attempts: three attempts over three send at most three requests, for
//! responses, errors and timeouts. Layers in one task count each other's retries. Responses that were retried in vain, and
//! the requests of extra attempts, carry a mark in their extensions. Where a mark or the count cannot travel, more requests
//! are sent:
//!
//! | three attempts over three | responses | errors | timeouts of the layer above |
//! |---|---|---|---|
//! | HTTP and gRPC | 3 | 3 | 3 |
//! | HTTP and gRPC, the layer below in another task: behind tower's `Buffer`, or spawned | 3 | 4 | up to 5 |
//! | `reqwest::Request`, which keeps its extensions private | 3 | 3 | up to 5 |
//! | requests of other services, which have no extensions | 3 | 3 | up to 5 |
//! | the layer below in another process | 9 | 9 | 9 |
//!
//! Three consequences: a proxy that copies extensions to other messages copies the marks. A handler that calls others
//! through retry layers in its own task counts their retries as its own, if it fails itself. A service that replaces the
//! request's extensions removes the mark. Put the layer in one place, as close to the fault as you can tell a repeat is
//! right, and let the layers that share a backend share one [`Budget`]: the outermost takes it with
//! [`budget`](RetryLayerBuilder::budget), those below with [`shared_budget`](RetryLayerBuilder::shared_budget).
//!
//! # Watching and changing it
//!
//! An HTTP response that took more than one attempt, or should have, has a [`RetryInfo`] in its extensions. An
//! [`Observer`] receives every attempt with its outcome, every delay, and one end of each call; `MetricsObserver` and
//! `TracingObserver` are ready ones. A [`RetryHandle`] counts, changes single settings
//! while the service runs, and switches retries off, or to a [shadow mode](Mode::Shadow) that only counts: try the layer in
//! production with it.
//!
//! # Cost
//!
//! A call whose first attempt succeeds pays for the copy of its request and of the service, and for a load or two of atomics:
//! no allocation of ours, no lock, no timer, no clock, no boxed future. A request that may not be repeated costs no copy.
//! `retry_until`, hard time limits and a `grpc-timeout` cost a reading of the clock or two, and hard limits a timer in
//! calls that don't answer at once.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `http` (default) | `RetryLayer::http` and the rules for HTTP |
//! | `grpc` | `RetryLayer::grpc` and the rules for gRPC |
//! | `hyper-util-01` | the errors of hyper-util 0.1's client, hyper 1 and h2 0.4 are recognised: see [`Http`] |
//! | `tonic-014`, `reqwest-013` | the same, for the errors and bodies of tonic 0.14 and of reqwest 0.13 |
//! | `axum-08` | the bodies of axum 0.8 can be resent |
//! | `tower` | [`Backoff`] and [`Budget`] serve in tower's own retry |
//! | `tracing` | an observer that writes log lines and spans, `TracingObserver` |
//! | `metrics` | an observer that records metrics, `MetricsObserver` |
//!
//! A feature only adds; none changes what the others do. None enables HTTP/1 or HTTP/2 in the servers of the same build,
//! except that `tonic-014` and `reqwest-013` need the protocols of these clients. The minimum supported Rust version is 1.88.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
mod counts;
mod future;
mod handle;
mod info;
mod jitter;
mod layer;
mod nested;
mod retry_after;
mod service;
mod settings;
mod time_limit;

#[cfg(feature = "metrics")]
pub use tower_attempt::MetricsObserver;
#[cfg(feature = "tracing")]
pub use tower_attempt::TracingObserver;
pub use tower_attempt::{
    Attempt, AttemptKind, AttemptOutcome, AttemptScope, Budget, Budgets, BuildError, CallInfo,
    Classify, ClassifyFn, Deadline, DelaySource, Elapsed, Event, EveryError, Generic, Hint,
    LayerKind, Mode, NoObserver, Observed, Observer, OneClass, Rejected, RequestRule, RetryIf,
    RetryOverride, RetryReason, SkipReason, StopReason, TimeoutAnswer, Verdict, WrapsError,
};
#[cfg(feature = "http")]
pub use tower_attempt::{
    Dialect, Http, HttpOutcome, OutcomeView, ReplayBody, ReplayableBody, RequestHead,
};
#[cfg(feature = "grpc")]
pub use tower_attempt::{Grpc, GrpcCode, GrpcOutcome};

pub use self::backoff::{Backoff, Schedule};
pub use self::counts::RetryCounts;
pub use self::future::ResponseFuture;
pub use self::handle::RetryHandle;
pub use self::info::RetryInfo;
pub use self::jitter::Jitter;
pub use self::layer::{RetryLayer, RetryLayerBuilder};
pub use self::service::Retry;
pub use self::time_limit::{NoTimeLimit, OnTimeout, StandardAnswer};

#[cfg(all(doctest, feature = "metrics", feature = "tracing"))]
#[doc = include_str!("../README.md")]
struct Readme;
