//! Rate limits that a whole fleet shares, in Memcached: a backend of [`tower-dist-ratelimit`](tower_dist_ratelimit).
//!
//! A fixed window is usually a counter, and a request that is admitted takes one round trip. All other algorithms, and
//! sets of policies, are values, which compare-and-swap changes in two round trips. If a request has several limits
//! with one key, it takes tokens of all limits or of none.
//!
//! ```
//! use tower_dist_ratelimit::{Limiter, Policy, Quota, Source};
//! use tower_dist_ratelimit_memcached::Memcached;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Connects in the background, so that a service also starts during an outage of the server.
//!     let memcached = Memcached::connect_lazy("memcached://127.0.0.1:11211")?;
//!     let limiter = Limiter::new(memcached, Policy::new("per-client", Quota::per_minute(600)).fixed_window_from_first_request())?;
//!     let decision = limiter.check("client-42").await?;
//!     // Until the first connection this process decides by itself.
//!     assert!(decision.allowed && decision.source == Source::Local);
//!     Ok(())
//! }
//! ```
//!
//! The backend works with one or several servers of Memcached 1.6.10 or later. See [`Memcached`] for URLs, keys and
//! values, and the behaviour during failures.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod builder;
mod clock;
mod counter_policy;
mod failure;
mod items;
mod key;
mod link;
mod operation;
mod pipeline;
mod reply;
mod request;
mod target;
mod wire;

pub use backend::Memcached;
pub use builder::MemcachedBuilder;
pub use tower_dist_ratelimit::backend::toolkit::ConnectError;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
