//! Rate limits for any tower service, in one process or across a fleet, with exact decisions and standard responses.
//!
//! A [`Policy`] is one limit: a [`Quota`], an algorithm, and a [key](mod@key) to count by. A layer applies one or more
//! policies to its requests, and a [backend] keeps the counts.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::{Router, body::Body, routing::get};
//! use http::Request;
//! use tower::ServiceExt;
//! use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory, key};
//!
//! let layer = RateLimitLayer::builder(Memory::default())
//!     // 600 requests per minute for each client, with a burst of 2.
//!     .limit(Policy::new("per-client", Quota::per_minute(600).burst(2)).by(key::header("x-api-key")))
//!     // 5,000 requests per second for all clients together.
//!     .limit(Policy::new("total", Quota::per_second(5_000)))
//!     .build()?;
//! let app: Router = Router::new().route("/", get(async || "hello")).layer(layer);
//!
//! let mut statuses = Vec::new();
//! for _ in 0..3 {
//!     let request = Request::builder().header("x-api-key", "alice").body(Body::empty())?;
//!     statuses.push(app.clone().oneshot(request).await?.status().as_u16());
//! }
//! assert_eq!(statuses, [200, 200, 429]);
//! # Ok(())
//! # }
//! ```
//!
//! - **Exact.** [`retry_after`](Decision::retry_after) is the time until a rejected request can pass, if no other
//!   request takes its tokens. In [`Memory`](backend::Memory) with [`Consistency::Exact`], that time is exact to the
//!   nanosecond. A rejection by a quota charges nothing. With a fixed quota, rounding errors do not add up, however
//!   long the process runs.
//! - **All or nothing.** Several policies are decided together. If one of them rejects a request, the other policies
//!   are not charged, or refund their charges.
//! - **Cheap.** In [`Memory`](backend::Memory), a single token bucket with a fixed quota takes no lock for a known key.
//!   Without response headers, it usually allocates nothing.
//! - **Standard.** A request over its limit usually gets status 429 with `Retry-After`, a problem document and the
//!   IETF's `RateLimit` headers. For gRPC it usually gets `RESOURCE_EXHAUSTED` with `RetryInfo`.
//!
//! # Settings
//!
//! | subject | setting |
//! |---|---|
//! | rate and burst | [`Quota`]: by default a token bucket of [`burst`](Quota::burst) tokens that gains `limit` tokens per window |
//! | algorithm | [`Policy::sliding_window_log`], [`fixed_window`](Policy::fixed_window) and others; see the [guide] |
//! | key to count by | [`Policy::by`] with a [key](mod@key), [`by_fn`](Policy::by_fn), [`by_str`](Policy::by_str) |
//! | requests without a key | [`Policy::missing_key`] |
//! | cost of a request | [`Policy::cost`], [`cost_fn`](Policy::cost_fn) |
//! | requests that a policy applies to | [`Policy::only_if`]; [`exempt`](RateLimitLayerBuilder::exempt) for the whole layer |
//! | quota per key | [`Policy::quota_by`], [`quota_by_async`](Policy::quota_by_async) |
//! | responses to clients | [`headers`](RateLimitLayerBuilder::headers), [`rejection`](RateLimitLayerBuilder::rejection), [`grpc`](RateLimitLayerBuilder::grpc), [`Policy::hidden`] |
//! | costs known after the response | [`handle`](RateLimitLayerBuilder::handle), [`refund_when`](RateLimitLayerBuilder::refund_when) |
//! | observability | [`name`](RateLimitLayerBuilder::name) and [`observer`](RateLimitLayerBuilder::observer); [`shadow`](RateLimitLayerBuilder::shadow) to try limits out |
//! | place of the counts | a [backend]: [`Memory`](backend::Memory) in this process, or `Redis` and `Memcached` in crates of their own |
//! | backend failures | [`FailureMode`] |
//! | round trips to the backend | [`Consistency`], [`deny_cache`](RateLimitLayerBuilder::deny_cache) |
//!
//! # Four forms
//!
//! | form | a request above the limit | use |
//! |---|---|---|
//! | [`RateLimitLayer`] | gets a response: by default status 429, or a gRPC status | servers of HTTP and gRPC |
//! | [`CallLimitLayer`] | fails with [`LimitError::RateLimited`] | services with requests of any type |
//! | [`ThrottleLayer`] | waits for its turn, up to a maximum | clients that stay within the limit of another service |
//! | [`Limiter`] | gets a [`Decision`] | code without tower |
//!
//! All forms decide several policies together, all or nothing, and share the settings `name`, `observer`, `shadow`,
//! `failure_mode`, `backend_timeout`, `consistency` and `deny_cache`. They differ here:
//!
//! | | [`RateLimitLayer`] | [`CallLimitLayer`], [`ThrottleLayer`] | [`Limiter`] |
//! |---|---|---|---|
//! | keys | per policy, from the request | per policy, from the request | one key per check |
//! | quota per key | [`Policy::quota_by`], [`quota_by_async`](Policy::quota_by_async) | [`RequestPolicy::quota_by`] | [`with_quota`](Limiter::with_quota) |
//! | cost known later | [`RateLimitHandle`], [`Meter`], [`refund_when`](RateLimitLayerBuilder::refund_when) | a [`Limiter`] inside the service | [`charge`](Limiter::charge), [`refund`](Limiter::refund) |
//!
//! ```
//! use std::{convert::Infallible, time::Duration};
//! use tower::{Layer, Service, ServiceExt, service_fn};
//! use tower_dist_ratelimit::{CallLimitLayer, Policy, Quota, backend::Memory};
//!
//! struct Mail { to: String }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A provider accepts 10 mails per second, with a burst of 10. Mails to one address wait for their turn, in order. A
//! // call that would wait for more than 5 seconds fails, usually immediately.
//! let layer = CallLimitLayer::builder(Memory::default())
//!     .limit(Policy::new("provider", Quota::per_second(10)))
//!     .limit(Policy::new("per-address", Quota::per_minute(2)).by_request(|mail: &Mail| mail.to.clone()))
//!     .waiting()
//!     .max_wait(Duration::from_secs(5))
//!     .build()?;
//!
//! let mut send = layer.layer(service_fn(async |_: Mail| Ok::<_, Infallible>(())));
//! let mail = || Mail { to: "ada@example.com".to_owned() };
//! send.ready().await?.call(mail()).await?;
//! send.ready().await?.call(mail()).await?;
//! assert!(send.ready().await?.call(mail()).await.is_err()); // its turn would be in 30 s
//! # Ok(())
//! # }
//! ```
//!
//! # Placement
//!
//! Place the layer outside timeouts, concurrency limits and buffers, so that rejected requests do not occupy them.
//! Place it inside authentication if a key depends on the user. Retries of your clients count as requests. Place a
//! [`ThrottleLayer`] inside your own retry layer, so that each retry waits for its turn. If the throttle rejects a
//! call, `tower-jitter-retry` waits at least for the rejection's `retry_after` before it retries the call. By default,
//! it does not retry a rejection without a `retry_after`.
//!
//! All services and clones of one layer share its counts, also in frameworks that call `layer` more than once.
//!
//! # Backend failures
//!
//! For a decision of the backend, a request waits at most the
//! [`backend_timeout`](RateLimitLayerBuilder::backend_timeout), by default 50 ms. A circuit breaker opens after five
//! failures in a row, where requests in flight together count once, or if at least half of ten or more decisions within
//! about a second fail. While the circuit is open, one request at a time probes the backend, and requests spend existing
//! [leases](Consistency::Leased).
//! [`FailureMode`] decides the other requests that meet a failure or an open circuit:
//!
//! | [`FailureMode`] | a request | client sees by default |
//! |---|---|---|
//! | [`Local`](FailureMode::Local), the default | is decided by this instance, with its share of each quota | the usual response if allowed; 503, or `UNAVAILABLE`, if rejected |
//! | [`Closed`](FailureMode::Closed) | is rejected | 503, or `UNAVAILABLE` |
//! | [`Open`](FailureMode::Open) | passes | the response without `RateLimit` headers |
//!
//! With the default of one instance, a fleet of N instances admits up to N times the limit during an outage.
//! [`Decision::source`] names the source of a decision. [`Event::BackendFailed`] reports each request that the
//! failure mode decides during an outage.
//!
//! A service can start during an outage: `Redis::connect_lazy` and `Memcached::connect_lazy` return immediately and
//! connect in the background.
//!
//! # Features
//!
//! - `attempt` (default): retry and hedge layers above recognise rejections. Adds the small crate `tower-attempt`.
//! - `axum-08`: [`key::peer_addr`] reads axum 0.8's `ConnectInfo`; adds `key::matched_path`.
//! - `tonic-014`: [`key::peer_addr`] reads tonic 0.14's `TcpConnectInfo`. tonic's server enables HTTP/1 and HTTP/2 in
//!   hyper for every server of the same build.
//! - `tracing`: `TracingObserver`; log lines for a missing key, a late quota look-up, the first correction that a
//!   backend has lost, and changes of the circuit.
//! - `metrics`: `MetricsObserver`.
//! - `processor-clock`: `backend::Memory::with_processor_clock`, for faster decisions.
//! - `toolkit`: `backend::toolkit`, for authors of a backend over a network.
//! - `cas`: `backend::CasBackend`, which turns any store with compare-and-swap into a backend. Includes `toolkit`.
//! - `conformance`: the checks that every [`Backend`](backend::Backend) must pass.
//!
//! [`Memory`](backend::Memory) uses `tokio`'s time, so a paused clock controls its limits in tests. Only a memory with a
//! processor clock does not.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod algorithm;
pub mod arithmetic;
pub mod backend;
mod background;
mod bracket;
mod build_error;
mod call;
#[cfg(feature = "conformance")]
pub mod conformance;
mod consistency;
mod decision;
mod delayed;
mod deny;
mod eventual;
mod failover;
pub mod guide;
mod handle;
mod headers;
mod http;
pub mod key;
mod layer;
mod lease;
mod limiter;
mod limits;
mod observe;
mod policy;
mod quota;
mod register;
mod reject;
mod setters;
mod terms;
mod throttle;

pub use build_error::BuildError;
pub use call::{
    CallFuture, CallLimit, CallLimitLayer, CallLimitLayerBuilder, LimitError, RateLimited,
    Rejecting, Waits,
};
pub use consistency::Consistency;
pub use decision::{Decided, Decision, Decisions, Source};
pub use failover::FailureMode;
pub use handle::{Meter, MeteredBody, RateLimitHandle};
pub use headers::ResponseHeaders;
pub use http::ResponseHead;
pub use key::client_ip::TrustedProxies;
pub use layer::{RateLimit, RateLimitLayer, RateLimitLayerBuilder, ResponseFuture};
pub use limiter::{Limiter, LimiterBuilder};
#[cfg(feature = "metrics")]
pub use observe::MetricsObserver;
#[cfg(feature = "tracing")]
pub use observe::TracingObserver;
pub use observe::{Event, Observer};
pub use policy::{Algorithm, MissingKey, Policy, RequestPolicy};
pub use quota::Quota;
pub use reject::{GrpcRejection, ProblemJson, Reason, Rejection, RejectionResponse};
pub use throttle::{Throttle, ThrottleFuture, ThrottleLayer};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
