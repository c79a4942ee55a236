//! The Memcached backend on real servers, which the tests start and stop.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod cancelling;
mod connecting;
mod decisions;
mod deploying;
mod faults;
mod lazy;
mod leases;
mod races;
mod servers;
mod sharing;
mod stub;
mod support;
mod windows;
