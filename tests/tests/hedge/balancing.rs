//! Hedges over tower's p2c balancer with `PeakEwma`.

use std::collections::hash_map::DefaultHasher;
use std::convert::Infallible;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::balance::p2c::Balance;
use tower::buffer::Buffer;
use tower::discover::ServiceList;
use tower::load::{CompleteOnResponse, PeakEwma};
use tower::util::rng::{HasherRng, Rng};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_hedge_latency::{Budget, Drain, HedgeLayer};

type Body = Empty<Bytes>;

/// tokio rounds every timer up to 1 ms, so 1 ms of these services is 100 ms on the clock.
const SCALE: u32 = 100;

const ENDPOINTS: u32 = 10;
const CALLERS: u32 = 20;
const CALLS: u32 = 10_000;

fn ms(millis: f64) -> Duration {
    Duration::from_secs_f64(millis / 1e3) * SCALE
}

fn random(seed: u32) -> HasherRng<BuildHasherDefault<DefaultHasher>> {
    let mut random = HasherRng::with_hasher(BuildHasherDefault::default());
    for _ in 0..seed {
        random.next_u64();
    }
    random
}

/// Answers after 10 to 20 ms; the first endpoint is ten times slower.
fn endpoint(
    number: u32,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Send
{
    let mut random = random(number * 1_000);
    let factor = if number == 0 { 10.0 } else { 1.0 };
    service_fn(move |_: Request<Body>| {
        let millis = (10.0 + 10.0 * random.next_f64()) * factor;
        async move {
            sleep(ms(millis)).await;
            Ok(Response::new(Body::new()))
        }
    })
}

/// Requires a runtime, because the buffer spawns a task.
fn balancer()
-> impl Service<Request<Body>, Response = Response<Body>, Error = BoxError, Future: Send>
+ Clone
+ Send
+ 'static {
    let decay = ms(1_000.0).as_secs_f64() * 1e9;
    let endpoints = (0..ENDPOINTS).map(|number| {
        let completion = CompleteOnResponse::default();
        PeakEwma::new(endpoint(number), ms(15.0), decay, completion)
    });
    let endpoints = ServiceList::new(endpoints.collect::<Vec<_>>());
    Buffer::new(Balance::from_rng(endpoints, random(1)), 1024)
}

/// The 99th percentile of many calls, in milliseconds.
fn p99<S>(service: impl AsyncFnOnce() -> S) -> f64
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let mut latencies: Vec<Duration> = runtime.block_on(async {
        let service = service().await;
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let service = service.clone();
            callers.spawn(async move {
                let mut latencies = Vec::new();
                for _ in 0..CALLS / CALLERS {
                    let start = Instant::now();
                    let call = service.clone().oneshot(Request::new(Body::new()));
                    assert!(call.await.is_ok());
                    latencies.push(start.elapsed());
                }
                latencies
            });
        }
        callers.join_all().await.concat()
    });
    latencies.sort_unstable();
    let p99 = latencies[latencies.len() * 99 / 100];
    p99.as_secs_f64() / ms(1.0).as_secs_f64()
}

/// `PeakEwma` records the latency of a cancelled attempt up to its cancellation. The slow endpoint then looks as fast as
/// its hedges, and the balancer keeps choosing it.
#[test]
fn over_peak_ewma_cancelled_losers_double_the_tail_and_drained_losers_leave_it_as_it_is() {
    let hedge = || {
        let layer = HedgeLayer::builder().fixed(ms(20.0));
        layer.budget(Budget::unlimited())
    };
    let cancelling = hedge().http().build().unwrap();
    // At least as long as the slowest response.
    let drain = Drain::default().time_limit(ms(1_000.0));
    let draining = hedge().drain(drain).http().build().unwrap();
    for (what, p99, expected) in [
        ("no hedges", p99(async || balancer()), 20.0),
        (
            "cancelled",
            p99(async || cancelling.layer(balancer())),
            36.0,
        ),
        ("drained", p99(async || draining.layer(balancer())), 20.0),
    ] {
        println!("{what}: {p99:.1} ms");
        assert!((p99 / expected - 1.0).abs() < 0.1, "{what}: {p99} ms");
    }
}
