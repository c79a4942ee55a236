//! Proofs that a server did not process a request, through each common client. The proofs are errors of client
//! libraries; these tests fail if an update changes those errors.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod bodies;
mod connecting;
mod http2;
mod local;

use std::time::Duration;

use http::Method;
use tests::Events;
use tests::clients::{Answer, Client, Payload};
use tower::BoxError;
use tower_jitter_retry::{
    Backoff, Budget, DelaySource, Http, Jitter, Observed, RetryLayer, RetryLayerBuilder,
};

const BACKOFF: Duration = Duration::from_millis(1);

/// Delay and source of the first retry after proof.
const IMMEDIATE: (Duration, DelaySource) = (Duration::ZERO, DelaySource::Unprocessed);
/// Delay and source of every other retry.
const DELAYED: (Duration, DelaySource) = (BACKOFF, DelaySource::Backoff);

fn builder(events: &Events) -> RetryLayerBuilder<Http, Observed> {
    let backoff = Backoff::constant(BACKOFF).jitter(Jitter::None);
    let builder = RetryLayer::builder()
        .http()
        .without_redirects()
        .backoff(backoff);
    builder.observer(events.clone())
}

/// A budget without tokens.
fn broke() -> Budget {
    Budget::ratio(0.0).initial(0)
}

/// Each client, with plain and with boxed errors.
fn each(clients: &[Client]) -> impl Iterator<Item = (Client, bool)> {
    let variants = |client: &Client| [(*client, false), (*client, true)];
    clients.iter().flat_map(variants)
}

/// Sends a request without an `Idempotency-Key`.
async fn send(
    (client, boxed): (Client, bool),
    layer: &RetryLayer<Http, Observed>,
    method: Method,
    url: &str,
) -> Result<Answer, BoxError> {
    let payload = Payload::Stream("hello");
    client.send(layer, boxed, method, url, payload).await
}
