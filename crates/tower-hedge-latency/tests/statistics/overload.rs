//! A service that sheds most of its load.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::LocalSet;
use tokio::time::sleep;
use tower::load_shed::error::Overloaded;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_hedge_latency::HedgeLayer;

use crate::services::{lognormal, ms};

type Body = Empty<Bytes>;

/// Four of five calls are rejected immediately, and the others take around 10 ms. If the sample contained the rejected
/// calls, the 95th percentile would be the 75th of the accepted calls, and the budget would pay for a fourth of those.
#[test]
fn calls_that_are_shed_move_neither_the_trigger_nor_the_budget() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let random = Arc::new(Mutex::new(StdRng::seed_from_u64(1)));
    let accepted = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&accepted);
    let server = service_fn(move |request: Request<Body>| {
        let mut random = random.lock().unwrap();
        let latency = lognormal(&mut random, 10.0, 0.4);
        let is_hedge = request.headers().contains_key("x-hedge-attempt");
        let is_shed = random.random_bool(0.8);
        if !is_shed && !is_hedge {
            counter.fetch_add(1, Relaxed);
        }
        async move {
            if is_shed {
                return Err(BoxError::from(Overloaded::new()));
            }
            sleep(ms(latency)).await;
            Ok(Response::new(Body::new()))
        }
    });
    let layer = runtime.block_on(async {
        let builder = HedgeLayer::builder().percentile(0.95).window(ms(10_000.0));
        builder.http().build().unwrap()
    });
    let handle = layer.handle();
    let service = layer.layer(server);
    let run = |calls: u32| {
        let callers = LocalSet::new();
        for _ in 0..20 {
            let service = service.clone();
            callers.spawn_local(async move {
                for _ in 0..calls / 20 {
                    let call = service.clone().oneshot(Request::new(Body::new()));
                    // A rejected caller sends its next call after a pause.
                    if call.await.is_err() {
                        sleep(ms(1.0)).await;
                    }
                }
            });
        }
        runtime.block_on(callers);
        (accepted.load(Relaxed), handle.counts())
    };
    let (accepted_before, before) = run(50_000);
    let (accepted, after) = run(150_000);
    let accepted = (accepted - accepted_before) as f64;
    let late = (after.late - before.late) as f64 / accepted;
    let hedges = (after.hedges - before.hedges) as f64 / accepted;
    assert!(
        (0.045..0.055).contains(&late),
        "{late} of the accepted calls are late"
    );
    assert!(hedges < 0.055, "{hedges} of the accepted calls are hedged");
}
