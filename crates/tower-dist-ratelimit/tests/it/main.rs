//! The promises of the crate, one test each.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic on failure")]

mod algorithms;
mod answers;
mod asynchronous;
mod building;
mod calls;
#[cfg(feature = "conformance")]
mod conformance;
mod denying;
mod dynamic;
#[cfg(feature = "tracing")]
mod events;
mod extremes;
mod failover;
mod flood;
mod forms;
mod gaps;
mod grpc;
mod handles;
mod keys;
mod laws;
mod leases;
mod limiter;
mod memory;
mod metering;
#[cfg(all(feature = "metrics", feature = "tracing"))]
mod observers;
mod observing;
mod queueing;
mod remote;
mod settling;
mod shortcut;
mod support;
mod telling;
mod throttle;
mod wan;
