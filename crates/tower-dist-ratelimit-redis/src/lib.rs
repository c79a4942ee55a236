//! Rate limits that a whole fleet shares, in Redis or Valkey: a backend of
//! [`tower-dist-ratelimit`](tower_dist_ratelimit).
//!
//! A script on the server decides on all policies of a request, in one round trip and by the server's clock. So its
//! decisions are exact for any number of processes, and a request is charged to all its policies or to none. In a
//! Cluster, [several calls](Redis#cluster) may decide on a request.
//!
//! ```
//! use tower_dist_ratelimit::{Limiter, Policy, Quota, Source};
//! use tower_dist_ratelimit_redis::Redis;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Connects in the background, so that a service also starts during an outage of the server.
//!     let redis = Redis::connect_lazy("redis://127.0.0.1:6379")?;
//!     let limiter = Limiter::new(redis, Policy::new("per-client", Quota::per_minute(600).burst(100)))?;
//!     let decision = limiter.check("client-42").await?;
//!     // Until the first connection, this process decides with its share of the limit.
//!     assert!(decision.allowed && decision.source == Source::Local);
//!     Ok(())
//! }
//! ```
//!
//! The backend works with Redis 6 or later, Valkey, Redis Sentinel and Redis Cluster. See [`Redis`] for URLs, keys and
//! values, and the behaviour during failures.
//!
//! # Features
//!
//! - `tls`: supports `rediss://` URLs with rustls. Without the feature such a URL is an error, and the crate does not
//!   depend on rustls.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod arguments;
mod backend;
mod batch;
mod builder;
mod call;
mod cluster;
mod combiner;
mod compiled_policy;
mod connection;
mod decide;
mod failure;
mod key;
mod link;
mod part;
mod queued_call;
mod rate;
mod reply;
mod round_trip;
mod route;
mod rows;
mod run;
mod script;
mod scripts;
mod send_queue;
mod sentinel;
mod source;
mod tags;
mod target;
#[cfg(feature = "tls")]
mod tls;
#[cfg(test)]
mod trace_tests;

pub use backend::Redis;
pub use builder::RedisBuilder;
pub use tower_dist_ratelimit::backend::toolkit::ConnectError;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
