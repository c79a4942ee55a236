//! Helpers of the integration tests.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod cancel;
pub mod clients;
mod events;
mod http2;
mod probe;
pub mod raw;
pub mod servers;

pub use self::cancel::cancel_each;
pub use self::events::Events;
pub use self::http2::{Code, Http2Server, Reply};
pub use self::probe::{Answer, Probe, ProbeError, Readiness, Record, Request, Response};
pub use self::raw::RawServer;

/// Awaits the future and returns its output.
///
/// # Panics
///
/// Panics if the future takes suspiciously long.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    let limit = std::time::Duration::from_secs(20);
    let output = tokio::time::timeout(limit, future).await;
    output.expect("hangs")
}

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
