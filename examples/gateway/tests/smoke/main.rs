//! The claims of the README, checked on the real binary over real sockets.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod admin;
mod backend;
mod client;
mod demo;
mod flaky;
mod fleet;
mod lifecycle;
mod limits;
mod process;
mod proxying;
