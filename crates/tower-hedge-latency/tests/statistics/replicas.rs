//! Three replicas. One of them is 20 times slower than the others.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_hedge_latency::{HedgeLayer, UsedEndpoints};

use crate::services::{lognormal, ms};

type Body = Empty<Bytes>;

const REPLICAS: [&str; 3] = ["slow", "one", "other"];
const CALLERS: u32 = 50;
const CALLS: u32 = 60_000;

/// Sends each attempt to a random replica. With `UsedEndpoints` in the request, it avoids the replicas of earlier
/// attempts.
fn balancer()
-> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    let random = Arc::new(Mutex::new(StdRng::seed_from_u64(1)));
    service_fn(move |request: Request<Body>| {
        let mut random = random.lock().unwrap();
        let used = request.extensions().get::<UsedEndpoints>();
        let replica = loop {
            let replica = REPLICAS[random.random_range(0..REPLICAS.len())];
            if used.is_none_or(|used| !used.contains(replica)) {
                break replica;
            }
        };
        if let Some(used) = used {
            used.add(replica);
        }
        let millis = lognormal(&mut random, 10.0, 0.4);
        let factor = if replica == "slow" { 20.0 } else { 1.0 };
        async move {
            sleep(ms(millis * factor)).await;
            Ok(Response::new(Body::new()))
        }
    })
}

/// The 99th percentile of many calls, in milliseconds.
fn p99<S>(service: S) -> f64
where
    S: Service<Request<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Response: Send,
    S::Future: Send,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let mut latencies: Vec<Duration> = runtime.block_on(async {
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let service = service.clone();
            callers.spawn(async move {
                let mut latencies = Vec::new();
                for _ in 0..CALLS / CALLERS {
                    let start = Instant::now();
                    let call = service.clone().oneshot(Request::new(Body::new()));
                    let Ok(_) = call.await;
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

/// Hedges to any replica halve the tail, and hedges to another replica remove it. All
/// answers are lognormal around 10 ms with σ 0.4, and hedges go out after 20 ms.
#[test]
fn hedges_that_go_elsewhere_take_the_tail_of_a_slow_replica_away() {
    let hedge = || HedgeLayer::builder().fixed(ms(20.0));
    let anywhere = hedge().http().build().unwrap();
    let elsewhere = hedge().spread().http().build().unwrap();
    for (what, p99, expected) in [
        ("no hedges", p99(balancer()), 424.0),
        ("hedges anywhere", p99(anywhere.layer(balancer())), 256.0),
        ("hedges elsewhere", p99(elsewhere.layer(balancer())), 41.0),
    ] {
        let off: f64 = p99 / expected - 1.0;
        assert!(off.abs() < 0.03, "{what}: {p99} ms, not {expected}");
    }
}
