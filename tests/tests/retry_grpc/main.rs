//! The rules for gRPC, with tonic on both ends of a real connection.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod hedging;
mod limits;
mod metadata;
mod nested;
mod status;
mod streams;
mod transparent;
mod words;

use std::time::Duration;

use tests::Events;
use tonic::transport::Channel;
use tower::Layer;
use tower_jitter_retry::{Backoff, Grpc, Jitter, Observed, Retry, RetryLayer, RetryLayerBuilder};

use self::words::{Client, ECHO, JOIN, LETTERS};

const BACKOFF: Duration = Duration::from_millis(1);

/// Exponential backoff without jitter.
fn builder(events: &Events) -> RetryLayerBuilder<Grpc, Observed> {
    let backoff = Backoff::exponential(BACKOFF, Duration::from_secs(1)).jitter(Jitter::None);
    let builder = RetryLayer::builder().grpc().backoff(backoff);
    builder.observer(events.clone())
}

fn client(events: &Events, channel: Channel) -> Client<Retry<Channel, Grpc, Observed>> {
    let layer = builder(events).idempotent_methods([ECHO, JOIN, LETTERS]);
    Client::new(layer.build().unwrap().layer(channel))
}
