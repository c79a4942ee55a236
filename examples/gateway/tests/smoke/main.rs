//! What the README claims, checked on the real binary over real sockets.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod client;
mod demo;
mod flaky;
mod lifecycle;
mod limits;
mod process;
mod proxying;
