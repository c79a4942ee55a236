//! Retries for any [tower](https://docs.rs/tower) service. The layer retries requests that are safe to resend, after an
//! exponential backoff with jitter, within a budget that protects a failing backend from a retry storm.
//!
//! # Quick start
//!
//! The default layer for HTTP needs no settings. A client's errors are recognised with that client's feature, here
//! `hyper-util-01`:
//!
//! ```
//! use bytes::Bytes;
//! use http::Request;
//! use http_body_util::Full;
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_jitter_retry::RetryLayer;
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
//! let client = ServiceBuilder::new().layer(RetryLayer::http()).service(client);
//! let response = client.oneshot(Request::get(url).body(Full::default())?).await?;
//! assert_eq!(response.status(), 200);
//! # Ok(())
//! # }
//! ```
//!
//! For a service with any other request that is `Clone`, the layer retries every `Err` and no `Ok`, unless a rule
//! ([`retry_if`](RetryLayerBuilder::retry_if), [`classify_with`](RetryLayerBuilder::classify_with)) decides otherwise.
//! An `Err` by which a layer below [rejects](Rejected) the request without naming a wait is not retried.
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
//! [`Backoff::schedule`] returns the delays alone, without tower.
//!
//! # HTTP: which outcomes are retried
//!
//! | outcome | idempotent requests | POST, PATCH, … |
//! |---|---|---|
//! | 429 | after a backoff with a base of 1 s | the same ([unless switched off](RetryLayerBuilder::retry_429_for_idempotent_only)) |
//! | 503 with a `Retry-After` above 0 | after a backoff with a base of 1 s | no |
//! | 408, 425, 500, 502, 503, 504 | yes | no |
//! | proof that the server did not process the request: a stale pooled connection, REFUSED_STREAM, a GOAWAY without an error | the first time immediately and without a token | the same |
//! | no connection: refused, timed out, no address | yes | yes |
//! | a layer below rejected the request and names a wait, such as a `ThrottleLayer` of `tower-dist-ratelimit` | at the earliest after that wait | the same |
//! | a layer below rejected the request without a wait, such as tower's `LoadShed` | no | no |
//! | an error of the request's own body | no | no |
//! | any other error of the client | yes | no |
//! | any other outcome | no | no |
//!
//! - Idempotent requests are GET, HEAD, OPTIONS, TRACE, QUERY, PUT, DELETE, and requests with an `Idempotency-Key`.
//!   [`idempotent_if`](RetryLayerBuilder::idempotent_if) declares further requests, and
//!   [`generate_idempotency_key`](RetryLayerBuilder::generate_idempotency_key) adds keys for servers that honour them.
//! - `Retry-After` is a lower bound for the delay, with up to a tenth of jitter, at most 1 s. Without it, the
//!   `RateLimit` field of a 429 is used. If the wait is longer than `max_retry_after`, the response is returned.
//! - CONNECT and requests with `Upgrade` are never retried.
//! - Only the response head is classified. An error while the body streams goes to the caller.
//! - [`classify`](RetryLayerBuilder::classify) has the last word on the meaning of an outcome. It never makes a request
//!   safe to resend: a POST that got a 404 is sent once, even if the rule calls the 404 transient.
//!
//! The [guide] lists the proofs that a server did not process a request, and the rejections that are recognised.
//!
//! **Bodies** in memory are shared. A streaming body is recorded up to
//! [`replay_limit`](RetryLayerBuilder::replay_limit). Once an attempt has read more, the request is not resent. Other
//! body types, such as a server's `Incoming`, become replayable as a [`ReplayBody`].
//!
//! # gRPC
//!
//! [`RetryLayer::grpc`] follows gRFC A6. It retries after UNAVAILABLE or RESOURCE_EXHAUSTED with a server's pushback,
//! and after proof that the server did not process the call. UNAVAILABLE without a pushback and broken connections are
//! retried for the methods declared [idempotent](RetryLayerBuilder::idempotent_methods). Each retry carries the
//! remaining time of a `grpc-timeout`. See [`Grpc`].
//!
//! # Time limits
//!
//! | limit | ends the attempt in flight | the caller receives |
//! |---|---|---|
//! | [`retry_until`](RetryLayerBuilder::retry_until) | no | a failure immediately, if its retry would start too late |
//! | [`attempt_timeout`](RetryLayerBuilder::attempt_timeout) | yes; the attempt is retried if the request is idempotent | a timeout, if the last attempt timed out |
//! | [`deadline`](RetryLayerBuilder::deadline) | yes, with the call | a timeout, or a failure immediately, if its retry would start too late |
//!
//! [`RetryOverride::deadline`] acts like `deadline` in a layer with an `attempt_timeout`, a `deadline` or an
//! `on_timeout`, and like `retry_until` in any other layer.
//!
//! The outcome that the caller receives after a timeout depends on the service's error type ([`TimeoutAnswer`]): an
//! error where errors are boxed, a 504 for axum and reqwest, DEADLINE_EXCEEDED over gRPC. An
//! [`on_timeout`](RetryLayerBuilder::on_timeout) closure replaces that outcome. hyper-util's error type has no
//! constructor, so box its errors: `.layer(retry).map_err(BoxError::from).service(client)`.
//!
//! Inside `tokio::spawn`, call a service with boxed errors as `service.ready().await?.call(request).await`.
//! `service.oneshot(request)` and tower's `Retry` above this layer do not compile there, as with tower's `Timeout`. A
//! `BoxCloneService` around the layer fixes both.
//!
//! # Overrides
//!
//! A [`RetryOverride`] in the extensions of an HTTP or gRPC request replaces settings for that request, in every retry
//! layer that the request passes. It cannot reach `reqwest::Request`, whose extensions are private. For requests of
//! other services, [`RequestRule::retry_override`] chooses the override.
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
//! # Layer order
//!
//! ```text
//! retry, with a deadline            waits with nothing in flight and no permit held
//!   hedge                           each attempt is a race
//!     timeout for one attempt       ends a stalled attempt
//!       rate or concurrency limit   counts every attempt
//!         client
//! ```
//!
//! With a hedge layer, put the timeout of an attempt below it, as a timeout layer.
//! [`attempt_timeout`](RetryLayerBuilder::attempt_timeout) would end the whole race, and drop a failure that one of its
//! attempts has already received, with its `Retry-After`.
//!
//! Layers that share a backend share one [`Budget`]: the outermost layer takes it with
//! [`budget`](RetryLayerBuilder::budget), the layers below with [`shared_budget`](RetryLayerBuilder::shared_budget).
//!
//! Retry layers above each other in one process do not multiply their attempts. The [guide] has the exceptions.
//!
//! # Observation
//!
//! The response of a retried HTTP request has a [`RetryInfo`] in its extensions. An [`Observer`] receives every
//! attempt, delay and end of a call; `MetricsObserver` and `TracingObserver` are ready observers. A [`RetryHandle`]
//! reads counts, changes settings, and switches retries off or to a [shadow mode](Mode::Shadow) that only counts.
//!
//! # Cost
//!
//! With the defaults and a body in memory, a call whose first attempt succeeds copies the request and the service, and
//! performs a few atomic operations. It makes no further allocation, takes no lock, uses no timer and boxes no future.
//! A CONNECT request is not copied. The call reads the clock only if the budget is not full.
//!
//! A time limit or an observer also reads the clock. `attempt_timeout` and `deadline` also use a timer, unless the
//! first poll ends the call. An observer, an override and some rules allocate.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `http` (default) | `RetryLayer::http` and the rules for HTTP |
//! | `grpc` | `RetryLayer::grpc` and the rules for gRPC |
//! | `hyper-util-01` | recognises the errors of hyper-util 0.1's client, hyper 1 and h2 0.4: see [`Http`] |
//! | `tonic-014`, `reqwest-013` | the same for the errors and bodies of tonic 0.14 and reqwest 0.13 |
//! | `axum-08` | the bodies of axum 0.8 can be resent |
//! | `tower` | [`Backoff`] and [`Budget`] serve in tower's own retry |
//! | `tracing`, `metrics` | `TracingObserver`, `MetricsObserver` |
//!
//! Features are additive. Only `tonic-014` and `reqwest-013` enable HTTP protocols of their clients. The minimum
//! supported Rust version is 1.88.
// The documentation describes all features, so without `grpc` some of its links lead nowhere.
#![cfg_attr(not(feature = "grpc"), allow(rustdoc::broken_intra_doc_links))]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
mod counts;
mod future;
pub mod guide;
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
