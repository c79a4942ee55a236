//! Rate limits for any tower service, in one process or over a whole fleet, with exact decisions and standard answers.
//!
//! # Why
//!
//! A service that takes whatever comes is as slow as its greediest client makes it. A rate limit gives each client a
//! share, and tells those who ask for more when to come back. That is only fair if the count is right, only cheap if
//! rejecting costs less than serving, and only useful to a client that is told something true.
//!
//! - **Your choice of algorithm.** Token bucket, leaky bucket as a meter or as a queue, fixed window, sliding window from
//!   two or more counters, sliding log: see [`Policy`].
//! - **Exact.** A rejected request is allowed after its [`retry_after`](Decision::retry_after), and not a nanosecond
//!   before. Rejections charge nothing. The count has no drift, however long the limiter runs.
//! - **All or nothing.** Several limits are decided in one step: a request that one of them rejects is charged to none.
//! - **Cheap.** Without fields, an allowed request to one policy, a bucket or a fixed window, takes no allocation, and no lock
//!   once its key is known.
//! - **Standard.** 429, `Retry-After`, a problem document, and the IETF's `RateLimit` fields; for gRPC,
//!   `RESOURCE_EXHAUSTED` with `RetryInfo`.
//!
//! # Five minutes
//!
//! ```
//! use axum::{Router, routing::get};
//! use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory, key};
//!
//! let layer = RateLimitLayer::builder(Memory::default())
//!     // 600 requests a minute from each client, at most 100 of them at once.
//!     .limit(Policy::new("per-client", Quota::per_minute(600).burst(100)).by(key::header("x-api-key")))
//!     // And no more than 5,000 a second from all of them.
//!     .limit(Policy::new("total", Quota::per_second(5_000)))
//!     .build()?;
//! let app: Router = Router::new().route("/", get(async || "hello")).layer(layer);
//! # Ok::<(), tower_dist_ratelimit::BuildError>(())
//! ```
//!
//! | to choose | with |
//! |---|---|
//! | how much | [`Quota`]: a token bucket of [`burst`](Quota::burst) tokens that gains `limit` of them per window |
//! | how it is counted | [`Policy::sliding_window_log`], [`fixed_window`](Policy::fixed_window) and others |
//! | for whom | [`Policy::by`], [`by_fn`](Policy::by_fn), [`by_str`](Policy::by_str) and [`key`]; without, for all together |
//! | what a request costs | [`Policy::cost`], [`cost_fn`](Policy::cost_fn) |
//! | who has no key | [`Policy::missing_key`] |
//! | for which requests, such as those of one route | [`Policy::only_if`] |
//! | who is left alone | [`exempt`](RateLimitLayerBuilder::exempt) |
//! | who may do more, or less | [`Policy::quota_by`], [`quota_by_async`](Policy::quota_by_async) |
//! | what the client sees | [`headers`](RateLimitLayerBuilder::headers), [`rejection`](RateLimitLayerBuilder::rejection), [`grpc`](RateLimitLayerBuilder::grpc) |
//! | which limits clients are not told of | [`Policy::hidden`] |
//! | what is known only afterwards | [`handle`](RateLimitLayerBuilder::handle), [`refund_when`](RateLimitLayerBuilder::refund_when) |
//! | what you see | [`observer`](RateLimitLayerBuilder::observer); [`shadow`](RateLimitLayerBuilder::shadow), to try limits out |
//! | where the state is | a [`backend`]; [`backend::Memory`] keeps it in this process |
//! | what happens when that fails | [`FailureMode`] |
//! | how many round trips to it there are | [`Consistency`], [`deny_cache`](RateLimitLayerBuilder::deny_cache) |
//!
//! # Which form
//!
//! | | a request above the limit | for |
//! |---|---|---|
//! | [`RateLimitLayer`] | gets a response: 429, or a gRPC status | what your service is asked over HTTP |
//! | [`CallLimitLayer`] | fails with [`LimitError::RateLimited`] | what your service is asked otherwise |
//! | [`ThrottleLayer`] | waits for its turn | what your service asks of others |
//! | [`Limiter`] | is what you make of it | all that is no `tower` service |
//!
//! What there is in each:
//!
//! | | [`RateLimitLayer`], also with [`grpc`](RateLimitLayerBuilder::grpc) | [`CallLimitLayer`] | [`ThrottleLayer`] | [`Limiter`] |
//! |---|---|---|---|---|
//! | several policies, all or nothing | yes | yes | yes | yes, of one key |
//! | a quota per key | [`quota_by`](Policy::quota_by), [`quota_by_async`](Policy::quota_by_async) | [`quota_by`](RequestPolicy::quota_by) | the same, looked up once, when the request comes | [`with_quota`](Limiter::with_quota) |
//! | costs that are known afterwards | [`RateLimitHandle`], [`Meter`], [`refund_when`](RateLimitLayerBuilder::refund_when) | a [`Limiter`] inside of the service | tokens of who is dropped before its call come back | [`charge`](Limiter::charge), [`refund`](Limiter::refund) |
//! | trying it out | [`shadow`](RateLimitLayerBuilder::shadow) | [`shadow`](CallLimitLayerBuilder::shadow) | the same: nobody waits | [`shadow`](LimiterBuilder::shadow) |
//! | an [`Observer`] | yes | yes | yes | yes |
//!
//! A `tonic` or `reqwest` client waits for its turn with a [`ThrottleLayer`] just as any other service: see there.
//!
//! ```
//! use std::time::Duration;
//! use tower_dist_ratelimit::{CallLimitLayer, Policy, Quota, backend::Memory};
//!
//! struct Mail { to: String }
//!
//! // A provider takes 10 mails a second. Waits for up to 5 seconds, in order; then fails.
//! let layer = CallLimitLayer::builder(Memory::default())
//!     .limit(Policy::new("provider", Quota::per_second(10)))
//!     .limit(Policy::new("per-address", Quota::per_minute(2)).by_request(|mail: &Mail| mail.to.clone()))
//!     .waiting()
//!     .max_wait(Duration::from_secs(5))
//!     .build()?;
//! # Ok::<(), tower_dist_ratelimit::BuildError>(())
//! ```
//!
//! # Which algorithm, where, and how
//!
//! What each choice lets through at most, and what a decision costs: in `Memory` the time that it takes, in other stores the
//! round trips; and the bytes that a key takes there with all that belongs to it.
//!
//! | algorithm | in any window at most | for | [`Memory`](backend::Memory) | `Redis` | `Memcached` | leased |
//! |---|---|---|---|---|---|---|
//! | token bucket (the default), [`leaky_bucket`](Policy::leaky_bucket) | burst + limit | nearly everything | 55 ns · 32 B | 1 · 190 B | 2 · 150 B | yes |
//! | [`leaky_queue`](Policy::leaky_queue) | the limit, evenly | calls to others that must not come in bursts | 55 ns · 32 B | 1 · 190 B | 2 · 150 B | no, exact |
//! | [`fixed_window`](Policy::fixed_window), [`fixed_window_staggered`](Policy::fixed_window_staggered) | 2 × limit | quotas by the hour or day, and the fewest operations | 55 ns · 32 B | 1 · 190 B | 1 · 150 B | yes |
//! | [`fixed_window_from_first_request`](Policy::fixed_window_from_first_request) | 2 × limit | the same, for each key from its first request on | 60 ns · 50 B | 1 · 190 B | 1 · 120 B | yes |
//! | [`sliding_window`](Policy::sliding_window) | 1.99 × limit; 1.02 to 1.15 on real traffic | a sliding window for little | 65 ns · 85 B | 1 · 190 B | 2 · 150 B | yes |
//! | [`sliding_window_buckets`](Policy::sliding_window_buckets) (n) | 1.99 × limit; closer on real traffic | the same, for some more | 65 ns · 100 B, and 1.7 ns · 8 B for each of n | 1 · 190 B, and 2 or more for each of n | 2 · 150 B, and 1 to 9 for each of n | yes |
//! | [`sliding_window_strict`](Policy::sliding_window_strict) (n) | the limit | hard limits in fixed memory; sustains n / (n + 1) of them | 65 ns · 100 B, and 1.7 ns · 8 B for each of n | 1 · 190 B, and 2 or more for each of n | 2 · 150 B, and 1 to 9 for each of n | yes |
//! | [`sliding_window_log`](Policy::sliding_window_log) | the limit | hard limits, when they are small | 100 ns · 100 B, and 16 to 32 for each token | 1 · 270 B, and 11 for each token | 2 · 150 B, and up to 18 for each token | yes |
//! | several policies of one key | as each by itself | limits that hold together, all or nothing | the sum | 1 · the sum | 2 · one value | no, an error |
//!
//! Times are one thread's for a key in the processor's caches; one of a million takes up to 200 ns instead of 55. Quotas by key
//! ([`Policy::quota_by`]) make a bucket in `Memory` 75 ns and 95 B. What a layer over HTTP adds to the service that it is around is 85 ns, with the
//! fields on the response 220 ns and 3 allocations, and for a rejection 350 ns and 5. (As `benches` in the repository measures them on one
//! machine. Bytes and round trips are held by tests.)
//!
//! | backend | whose limits | choose it when | a decision | what is worse |
//! |---|---|---|---|---|
//! | [`Memory`](backend::Memory) | one process's | there is one, or each may have its share | no wait | behind a load balancer a client gets as many limits as there are processes |
//! | `Redis` (crate `tower-dist-ratelimit-redis`) | a fleet's, by the server's clock | limits have to be exact | waits for the server once; takes 3 to 6 µs of its time, 0.2 µs for a hot key | a server of its own to run; Clusters ask keys of different slots apart |
//! | `Memcached` (crate `tower-dist-ratelimit-memcached`) | a fleet's, mostly by each machine's clock | there is one already | waits once or twice; takes 1 µs of the server's time for each counter or value | machines whose clocks are `s` apart let through what is allowed in `s` more; a full server forgets; 2 round trips or more for a bucket that others change, and for a window's refusals |
//! | `CasBackend` (feature `cas`) | a fleet's, by each machine's clock | a database with compare-and-swap is there already | waits twice, once for a rejection | the same as with `Memcached`; writers of one key take turns |
//!
//! | [`Consistency`] | round trips | in any time D at most | choose it when |
//! |---|---|---|---|
//! | `Exact`, the default | as above; none for who was rejected a moment ago | what the algorithm allows in D | the store is near |
//! | `Leased` (100 ms) | about 2 per lease time and hot key, however many decisions; nobody waits for them while there is enough | what it allows in D + the lease time | keys are hot, or the store is far |
//! | `Eventual` | 2 per interval and key | no bound: in an interval, as often the limit as there are instances | limits need not hold |
//!
//! If in doubt: a token bucket, in `Memory` for one process and in `Redis` for more, and `Exact`. Then `Leased`, if round trips are what
//! you wait for.
//!
//! # Where it goes
//!
//! Outside of what costs something: above timeouts, concurrency limits and buffers, so that rejected requests do not
//! queue for them. Below whatever finds out who the client is, if a key depends on it. The limit is ready whenever the
//! inner service is, and a rejection gives back what that readiness held. Retries of your own clients count as requests.
//! A [`ThrottleLayer`] goes below your own retries, so that each of them waits its turn. `tower-jitter-retry` resends a
//! request that the throttle rejected, after the rejection's `retry_after`.
//!
//! The state is made when the layer is built. Services and clones of one layer share it, which is what frameworks that
//! call `layer` more than once need.
//!
//! # When the store is far, or a key is hot
//!
//! A remote store takes a round trip for each decision. What to do about that, from the least to the most:
//!
//! | | round trips | lets through too much | for |
//! |---|---|---|---|
//! | nothing | one for each decision; decisions that wait for each other go out together | never | stores in the same place, up to some 100,000 decisions a second |
//! | [`deny_cache`](RateLimitLayerBuilder::deny_cache), on by default | none for who was rejected, until the store would admit them and for at most 1 s | never | clients that do not stop asking |
//! | [`Consistency::Leased`] | about 2 per lease time and hot key, in the background; above the limit, 1 for 16 requests | in any interval D, at most what the limit allows in D + the lease time: with 100 ms, a tenth of a limit per second | hot keys, and regions far from the store |
//! | [`Consistency::Eventual`] | 2 per interval and key | without a bound: in one interval, as many times the limit as there are instances | limits that need not hold |
//!
//! With leases a request of a hot key is decided in memory, by tokens that the store has already taken out of the bucket. They are
//! asked for before the last ones are used up, so no request waits while there are enough, even if the store is 150 ms away: then a
//! lease time of six round trips or more is needed, such as 2 s. Near the limit leases shrink, and requests wait for the store. What is left of a lease when it ends is lost, and with it a little of the limit: an
//! instance that is shut down can [give it back](Limiter::return_leases).
//! Measured in a simulation of 20 instances with one bucket of 1,000 tokens a second and 100 at once (`figures leases` in the
//! repository), asked for three times the limit for a minute: leases of 1 s let through what the limit allows, in no second more,
//! with 0.06 round trips per decision. Eventual consistency at intervals of 1 s, with 0.01 round trips, lets 2.7 times
//! the limit through in the worst second.
//!
//! ```
//! use std::time::Duration;
//! use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, Consistency, backend::Memory, key};
//!
//! // With `Redis` in place of `Memory`.
//! let layer = RateLimitLayer::builder(Memory::default())
//!     .limit(Policy::new("tenant", Quota::per_second(5_000)).by(key::header("x-tenant")))
//!     .consistency(Consistency::leased_for(Duration::from_millis(500)))
//!     .build()?;
//! # Ok::<(), tower_dist_ratelimit::BuildError>(())
//! ```
//!
//! # When the store fails
//!
//! A request waits for its store no longer than the [deadline](RateLimitLayerBuilder::backend_timeout) (50 ms), and none
//! is asked twice. A store that fails five times in a row, or in half of at least ten decisions of the last second, is
//! left alone, but for one request at a time that tries it. Meanwhile:
//!
//! | [`FailureMode`] | a request | the client is told |
//! |---|---|---|
//! | [`Local`](FailureMode::Local), the default | is decided by this process's share of every quota | the same as always; rejected: 503 with `Retry-After` and the problem type `temporary-reduced-capacity`, or `UNAVAILABLE` |
//! | [`Closed`](FailureMode::Closed) | is rejected | 503, or `UNAVAILABLE` |
//! | [`Open`](FailureMode::Open) | passes | nothing |
//!
//! [`Decision::source`] says who decided, [`Event::BackendFailed`] reports each request that the backend did not decide.
//! The docs of `Redis` have a table of how long decisions took when things happened to its server.
//!
//! A service starts during an outage, too: `Redis::connect_lazy` and `Memcached::connect_lazy` return at once and connect
//! in the background. Until the first connection [`FailureMode`] decides. `connect` fails instead, for tools and tests.
//!
//! # Features
//!
//! - `attempt` (default): retry and hedge layers above recognise rejections. Adds the small crate `tower-attempt`.
//! - `conformance`: the module of that name, with the checks that every [`Backend`](backend::Backend) has to pass.
//! - `axum-08`: [`key::peer_addr`] finds the address in axum 0.8's `ConnectInfo`; `key::matched_path`.
//! - `tonic-014`: [`key::peer_addr`] finds the address in tonic 0.14's `TcpConnectInfo`. tonic's server enables HTTP/1 and
//!   HTTP/2 in hyper, for every server of the same build.
//! - `cas`: `backend::CasBackend`, which makes a backend of any store with compare-and-swap. Includes `toolkit`.
//! - `toolkit`: [`backend::toolkit`], for those who write a backend over a network.
//! - `tracing`: `TracingObserver`; one warning per policy whose requests come without a key, and one event each when a
//!   store is left alone and when it is asked again.
//! - `metrics`: `MetricsObserver`.
//!
//! Time is `tokio`'s, so a paused clock governs all limits in tests.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod algorithm;
pub mod arithmetic;
pub mod backend;
mod build_error;
mod call;
#[cfg(feature = "conformance")]
pub mod conformance;
mod consistency;
mod decision;
mod delayed;
mod deny;
mod eventual;
mod future;
mod handle;
mod headers;
mod http;
pub mod key;
mod ladder;
mod layer;
mod lease;
mod limiter;
mod limits;
#[cfg(any(test, feature = "conformance"))]
mod model;
mod nearby;
mod observe;
mod policy;
mod quota;
mod register;
mod reject;
mod service;
mod setters;
mod throttle;

pub use build_error::BuildError;
pub use call::{
    CallFuture, CallLimit, CallLimitLayer, CallLimitLayerBuilder, LimitError, RateLimited,
    Rejecting, Waits,
};
pub use consistency::Consistency;
pub use decision::{Decided, Decision, Decisions, Source};
pub use future::ResponseFuture;
pub use handle::{Meter, MeteredBody, RateLimitHandle};
pub use headers::ResponseHeaders;
pub use http::ResponseHead;
pub use key::client_ip::TrustedProxies;
pub use ladder::FailureMode;
pub use layer::{RateLimitLayer, RateLimitLayerBuilder};
pub use limiter::{Limiter, LimiterBuilder};
#[cfg(feature = "metrics")]
pub use observe::MetricsObserver;
#[cfg(feature = "tracing")]
pub use observe::TracingObserver;
pub use observe::{Event, Observer};
pub use policy::{Algorithm, MissingKey, Policy, RequestPolicy};
pub use quota::Quota;
pub use reject::{GrpcRejection, ProblemJson, Reason, RejectWith, Rejection, RejectionResponse};
pub use service::RateLimit;
pub use throttle::{Throttle, ThrottleFuture, ThrottleLayer};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
