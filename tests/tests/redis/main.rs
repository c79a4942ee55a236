//! The Redis backend on real servers, which the tests start and stop.

mod cluster;
mod connecting;
mod decisions;
mod faults;
mod fleet;
mod sentinel;
mod support;
mod tls;
