//! The Redis backend on real servers, which the tests start and stop.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod cluster;
mod connecting;
mod decisions;
mod delays;
mod deploying;
mod extremes;
mod far;
mod faults;
mod fleet;
mod lazy;
mod leases;
mod sentinel;
mod sets;
mod support;
mod tls;
mod under_load;
