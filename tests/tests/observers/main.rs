//! Observers of retry and hedge layers: the facts of events, metrics, and spans.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod events;
mod metrics;
mod scopes;
mod tracing;

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use ::tracing::Dispatch;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::sleep;
use tower::{BoxError, Service, service_fn};
use tower_hedge_latency::{HedgeLayer, HedgeLayerBuilder, Http, Observed, Observer};
use tower_jitter_retry::{Backoff, Budget, RetryLayer, RetryLayerBuilder};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn get() -> Request<Full<Bytes>> {
    let request = Request::get("http://pay.test:8080/cards");
    request.body(Full::default()).unwrap()
}

/// An attempt that takes some milliseconds and returns a status or an error.
type Step = (u64, Result<u16, &'static str>);

/// A service whose n-th attempt does the n-th step.
fn backend(
    steps: &'static [Step],
) -> impl Service<Request<Full<Bytes>>, Response = Response<Full<Bytes>>, Error = BoxError, Future: Send>
+ Clone
+ Send {
    let steps = Arc::new(Mutex::new(steps.iter()));
    service_fn(move |_| {
        let (millis, outcome) = *steps.lock().unwrap().next().expect("a step");
        let span = ::tracing::info_span!("backend");
        async move {
            sleep(ms(millis)).await;
            ::tracing::info!("woken");
            drop(span);
            let status = outcome?;
            let response = Response::builder().status(status);
            Ok::<_, BoxError>(response.body(Full::default())?)
        }
    })
}

/// Retries after 100 ms.
fn retry(observer: impl Observer) -> RetryLayerBuilder<Http, Observed> {
    let backoff = Backoff::constant(ms(100)).jitter(tower_jitter_retry::Jitter::None);
    let builder = RetryLayer::builder().http().name("payments");
    let builder = builder.backoff(backoff).budget(Budget::unlimited());
    builder.observer(observer)
}

/// Sends hedges after 10 and 20 ms.
fn hedge(observer: impl Observer) -> HedgeLayerBuilder<Http, Observed> {
    let builder = HedgeLayer::builder().http().name("payments");
    let builder = builder.fixed(ms(10)).max_hedges(2);
    builder.observer(observer)
}

/// A subscriber that all tests of this process keep alive. Without it, `tracing` may disable an event for all threads: when
/// a thread without a subscriber is the first to reach the event while another test starts its own subscriber.
static LIVE_SUBSCRIBER: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// Runs calls on a paused clock on this thread, where the local recorder and the subscriber are.
fn run<T>(calls: impl Future<Output = T>) -> T {
    LazyLock::force(&LIVE_SUBSCRIBER);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(calls)
}
