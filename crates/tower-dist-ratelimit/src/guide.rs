//! How to choose an algorithm, a backend and a consistency.
//!
//! In doubt, use a token bucket with exact consistency: in `Memory` for one process, in `Redis` for a fleet. Use leases
//! if round trips dominate your latency.
//!
//! # Algorithms
//!
//! The table lists the maximum that each algorithm admits, and the cost of a decision: its time in `Memory` or its
//! round trips with a remote backend, and the bytes that a key takes.
//!
//! | algorithm | maximum in any window | use | [`Memory`] | `Redis` | `Memcached` | leased |
//! |---|---|---|---|---|---|---|
//! | token bucket (the default), [`leaky_bucket`] | burst + limit | most limits | 60 ns · 32 B | 1 · 190 B | 2 · 150 B | yes |
//! | [`leaky_queue`] | the limit, evenly spaced, if each request costs 1 | calls to a service that does not tolerate bursts | 65 ns · 32 B | 1 · 190 B | 2 · 150 B | no, exact |
//! | [`fixed_window`], [`fixed_window_staggered`] | 2 × limit | hourly or daily quotas, and the fewest operations | 60 ns · 32 B | 1 · 190 B | 1 · 150 B | yes |
//! | [`fixed_window_from_first_request`] | 2 × limit | the same, from a key's first request | 60 ns · 50 B | 1 · 190 B | 1 · 120 B | yes |
//! | [`sliding_window`] | less than 2 × limit; 1.02 to 1.15 × limit on random arrivals | a sliding window at a low price | 65 ns · 85 B | 1 · 190 B | 2 · 150 B | yes |
//! | [`sliding_window_buckets`] (n) | less than 2 × limit; closer on random arrivals | the same at a higher price | 60 ns · 100 B, plus 1.6 ns · 8 B per bucket | 1 · 190 B, plus 2 or more per bucket | 2 · 150 B, plus 1 to 9 per bucket | yes |
//! | [`sliding_window_strict`] (n) | the limit | hard limits in fixed memory; sustains n / (n + 1) of the limit | 60 ns · 100 B, plus 1.6 ns · 8 B per bucket | 1 · 190 B, plus 2 or more per bucket | 2 · 150 B, plus 1 to 9 per bucket | yes |
//! | [`sliding_window_log`] | the limit | hard limits that are small | 95 ns · 100 B, plus 16 to 37 per request | 1 · 270 B, plus 11 per token | 2 · 150 B, plus up to 18 per token | yes |
//! | several policies with one key | as each policy alone | limits that hold together, all or nothing | 120 to 150 ns per policy · the sum | 1 · the sum | 2 · one value | no, an error |
//!
//! The times hold for one thread and a key in the processor's caches. With a million keys, a decision takes 250 ns
//! instead of 60. With [quotas per key](crate::Policy::quota_by), a bucket in `Memory` takes 105 ns and 100 B. The HTTP
//! layer adds 120 ns to the inner service. With response headers it adds 260 ns and 3 allocations, and for a rejection
//! 290 ns and 5. The repository's `benches` measured the times on one quiet machine, where reading the clock takes 24 ns
//! of each. Tests verify the bytes in `Memory`.
//!
//! # Backends
//!
//! | backend | scope | use | a decision | drawback |
//! |---|---|---|---|---|
//! | [`Memory`] | one process | one process, or a part of the limit for each of several processes | never waits | N processes behind a load balancer admit N times the limit |
//! | `Redis` (crate `tower-dist-ratelimit-redis`) | a fleet, by the server's clock | exact limits | usually waits for one round trip; 2 to 7.8 µs of server time, 0.1 to 0.5 µs for a hot key | a server to operate; a Cluster decides keys of different slots separately |
//! | `Memcached` (crate `tower-dist-ratelimit-memcached`) | a fleet, mostly by each machine's clock | a server that exists already | usually waits for one or two round trips; 0.7 to 2 µs of server time for a counter | if clocks differ by a time T, the fleet admits in addition the tokens of a time T; a full server evicts counts; contended buckets take more round trips |
//! | `CasBackend` (feature `cas`) | a fleet, by each machine's clock | a database with compare-and-swap that exists already | usually waits for two round trips, and for one if it is a rejection | as with `Memcached`; writers of one key take turns |
//!
//! # Consistency
//!
//! A remote backend takes one or two round trips per decision. The options, from the strictest to the loosest:
//!
//! | option | round trips | over-admission | use |
//! |---|---|---|---|
//! | [`Exact`], the default | one or two per decision; concurrent decisions share a batch | none | a nearby backend |
//! | [`deny_cache`], on by default | none if a rejected request is repeated before the backend would admit it, for at most 1 s | none | clients that retry without a pause |
//! | [`Leased`] | about 2 per lease time, hot key and instance, usually in the background; above the limit, about 1 per 16 requests | in any interval D, at most the tokens that the limit admits in D + the lease time | hot keys, and distant backends |
//! | [`Eventual`] | up to 2 per interval, key and instance | unbounded: in one interval, each instance can admit the whole limit | advisory limits |
//!
//! With leases, requests of a hot key spend tokens that the backend has already deducted. The instance usually requests
//! the next lease before it has spent the last one, so few requests wait. Choose a lease time of at least six round
//! trips: 2 s for a round trip of 300 ms. Near the limit leases shrink, and more requests wait for the backend. Tokens
//! that remain when a lease ends are lost. Before an instance shuts down,
//! [`return_leases`](crate::Limiter::return_leases) returns a part of a bucket's tokens.
//!
#![doc = include_str!("../docs/leases.svg")]
//!
//! In a simulation (`figures leases` in the repository), 20 instances shared a bucket of 1,000 tokens per second with a
//! burst of 100. They received three times the limit for a minute. With leases of 1 s, they never admitted more in a
//! second than one bucket admits, with 0.06 round trips per decision. With eventual consistency at intervals of 1 s,
//! they took 0.01 round trips, and admitted 2.7 times that number in the worst second.
//!
//! ```
//! use std::{convert::Infallible, time::Duration};
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use tower::{Layer, ServiceExt, service_fn};
//! use tower_dist_ratelimit::{Consistency, Policy, Quota, RateLimitLayer, backend::Memory, key};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In production, with `Redis` in place of `Memory`.
//! let layer = RateLimitLayer::builder(Memory::default())
//!     .limit(Policy::new("tenant", Quota::per_second(5_000)).by(key::header("x-tenant")))
//!     .consistency(Consistency::leased_for(Duration::from_millis(500)))
//!     .build()?;
//!
//! let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))));
//! let request = Request::builder().header("x-tenant", "acme").body(())?;
//! assert_eq!(layer.layer(hello).oneshot(request).await?.status(), 200);
//! # Ok(())
//! # }
//! ```
//!
//! [`Memory`]: crate::backend::Memory
//! [`leaky_bucket`]: crate::Policy::leaky_bucket
//! [`leaky_queue`]: crate::Policy::leaky_queue
//! [`fixed_window`]: crate::Policy::fixed_window
//! [`fixed_window_staggered`]: crate::Policy::fixed_window_staggered
//! [`fixed_window_from_first_request`]: crate::Policy::fixed_window_from_first_request
//! [`sliding_window`]: crate::Policy::sliding_window
//! [`sliding_window_buckets`]: crate::Policy::sliding_window_buckets
//! [`sliding_window_strict`]: crate::Policy::sliding_window_strict
//! [`sliding_window_log`]: crate::Policy::sliding_window_log
//! [`Exact`]: crate::Consistency::Exact
//! [`Leased`]: crate::Consistency::Leased
//! [`Eventual`]: crate::Consistency::Eventual
//! [`deny_cache`]: crate::RateLimitLayerBuilder::deny_cache
