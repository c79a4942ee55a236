//! A correction goes to the component that made the charge.

use bytes::Bytes;
use http::{Request, Response};
use tokio::time::advance;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_dist_ratelimit::{FailureMode, Policy, Quota, RateLimitHandle, RateLimitLayer, Source};

use super::ms;
use crate::support::{Mood, Scripted, get};

fn layer(store: &Scripted) -> RateLimitLayer {
    let policy = Policy::new("tokens", Quota::per_hour(1_000)).cost(100);
    RateLimitLayer::builder(store.clone())
        .limit(policy)
        .failure_mode(FailureMode::Local { instances: 2 })
        .handle()
        .build()
        .unwrap()
}

/// Returns a request's handle, its source, and the remaining tokens.
async fn ask(layer: &RateLimitLayer) -> (RateLimitHandle, Source, u64) {
    let (tell, told) = std::sync::mpsc::channel();
    let inner = service_fn(move |request: Request<()>| {
        let handle = request.extensions().get::<RateLimitHandle>().cloned();
        let _ = tell.send(handle.unwrap());
        async { Ok::<_, std::convert::Infallible>(Response::new(Bytes::new())) }
    });
    let mut service = layer.layer(inner);
    let Ok(_) = service.ready().await.unwrap().call(get()).await;
    let handle = told.recv().unwrap();
    let (_, decision) = handle
        .decisions()
        .next()
        .map(|(_, one)| ((), *one))
        .unwrap();
    (handle, decision.source, decision.remaining)
}

#[tokio::test(start_paused = true)]
async fn local_charges_are_settled_locally_even_after_the_circuit_closes() {
    let store = Scripted::new(Mood::Failing);
    let layer = layer(&store);
    let (handle, source, left) = ask(&layer).await;
    assert_eq!((source, left), (Source::Local, 400));
    handle.settle(30);
    assert_eq!(store.asked(), 1, "the settlement did not reach the backend");
    let (handle, _, left) = ask(&layer).await;
    assert_eq!(left, 370);
    store.is(Mood::AtOnce);
    handle.settle(0);
    assert_eq!((store.asked(), layer.lost_corrections()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn corrections_of_backend_charges_are_lost_while_the_circuit_is_open() {
    let store = Scripted::new(Mood::AtOnce);
    let layer = layer(&store);
    let (first, source, _) = ask(&layer).await;
    assert_eq!(source, Source::Backend);
    let (second, ..) = ask(&layer).await;
    store.is(Mood::Failing);
    for _ in 0..5 {
        ask(&layer).await;
    }
    let asked = store.asked();
    first.settle(1);
    assert_eq!((store.asked(), layer.lost_corrections()), (asked, 1));
    store.is(Mood::AtOnce);
    advance(ms(100)).await;
    assert_eq!(ask(&layer).await.1, Source::Backend);
    second.settle(1);
    assert_eq!((store.asked(), layer.lost_corrections()), (asked + 2, 1));
}
