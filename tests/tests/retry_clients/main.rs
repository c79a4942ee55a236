//! Common clients against servers that misbehave.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod broken;
mod limits;
mod rules;
mod status;

use std::time::Duration;

use http::Method;
use tests::Events;
use tests::clients::{Answer, Client, Payload};
use tower::BoxError;
use tower_jitter_retry::{
    Backoff, DelaySource, Http, Jitter, Observed, RetryLayer, RetryLayerBuilder,
};

const BACKOFF: Duration = Duration::from_millis(1);
const DELAYED: (Duration, DelaySource) = (BACKOFF, DelaySource::Backoff);

fn builder(events: &Events) -> RetryLayerBuilder<Http, Observed> {
    let backoff = Backoff::constant(BACKOFF).jitter(Jitter::None);
    let builder = RetryLayer::builder().http().backoff(backoff);
    builder.observer(events.clone())
}

async fn send(
    client: Client,
    events: &Events,
    method: Method,
    url: &str,
) -> Result<Answer, BoxError> {
    let layer = builder(events).build().unwrap();
    let payload = Payload::Memory("");
    client.send(&layer, false, method, url, payload).await
}
