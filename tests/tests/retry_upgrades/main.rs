//! Requests that turn a connection into a tunnel pass through the layer and are sent once.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod connect;
mod websocket;

use tests::Events;
use tower_jitter_retry::{Backoff, Http, Observed, RetryLayer};

fn retry(events: &Events) -> RetryLayer<Http, Observed> {
    let builder = RetryLayer::builder().http().backoff(Backoff::none());
    builder.observer(events.clone()).build().unwrap()
}
