//! Requests with a handle, and the policies of that handle.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tokio::time::advance;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_dist_ratelimit::{
    Policy, Quota, RateLimitHandle, RateLimitLayer, RateLimitLayerBuilder, backend::Memory, key,
};

use crate::support::{Probe, field, from, get, send, slow};

type Seen = Arc<Mutex<Option<RateLimitHandle>>>;

/// An inner service with an empty response that keeps the handle of the last request.
fn keeping(
    seen: &Seen,
) -> impl Service<Request<()>, Response = Response<Bytes>, Error = Infallible> + Clone {
    let seen = Arc::clone(seen);
    service_fn(move |request: Request<()>| {
        *seen.lock().unwrap() = request.extensions().get().cloned();
        async { Ok(Response::new(Bytes::new())) }
    })
}

/// 100 tokens per key, one per second; every request reserves 10.
fn builder(name: &str) -> RateLimitLayerBuilder {
    let policy = Policy::new(name, slow(100)).cost(10);
    RateLimitLayer::builder(Memory::default())
        .limit(policy.by(key::header("key")))
        .handle()
}

/// Remaining tokens of each policy, the outermost first, in a request that takes 10 tokens and refunds them.
async fn left<S>(service: S, seen: &Seen) -> Vec<u64>
where
    S: Service<Request<()>, Response = Response<Bytes>, Error = Infallible>,
{
    service.oneshot(from("a")).await.unwrap();
    let handle = seen.lock().unwrap().take().unwrap();
    let mut left: Vec<_> = handle
        .decisions()
        .map(|(_, decision)| decision.remaining + 10)
        .collect();
    left.reverse();
    handle.settle(0);
    left
}

#[tokio::test(start_paused = true)]
async fn an_exempt_request_has_an_empty_handle() {
    let seen = Seen::default();
    let layer = builder("p").exempt(|head| head.method() == "OPTIONS");
    let service = layer.build().unwrap().layer(keeping(&seen));
    let preflight = Request::options("/").header("key", "a").body(()).unwrap();
    service.clone().oneshot(preflight).await.unwrap();
    let handle = seen.lock().unwrap().take().expect("as all others");
    assert_eq!(handle.decisions().count(), 0);
    assert!(handle.policy("p").is_none());
    handle.settle(50);
    drop(handle.meter());
    assert_eq!(left(service, &seen).await, [100]);
}

/// Five tokens per ten seconds.
#[tokio::test(start_paused = true)]
async fn a_refund_of_a_past_window_adds_nothing_to_the_next() {
    let quota = Quota::new(5, Duration::from_secs(10));
    for policy in [
        Policy::new("fixed", quota).fixed_window(),
        Policy::new("first", quota).fixed_window_from_first_request(),
        Policy::new("log", quota).sliding_window_log(),
    ] {
        let (seen, name) = (Seen::default(), policy.name().to_owned());
        let layer = RateLimitLayer::builder(Memory::default()).limit(policy);
        let service = layer.handle().build().unwrap().layer(keeping(&seen));
        let pass = async || service.clone().oneshot(get()).await.unwrap().status();
        let handle = async || {
            assert_eq!(pass().await, 200, "{name}");
            seen.lock().unwrap().take().unwrap()
        };
        let [early, late, longer] = [handle().await, handle().await, handle().await];
        early.refund(1);
        for _ in 0..3 {
            assert_eq!(pass().await, 200, "{name}");
        }
        assert_eq!(pass().await, 429, "{name}");
        advance(quota.window()).await;
        for _ in 0..3 {
            assert_eq!(pass().await, 200, "{name}");
        }
        // The refund has no effect, so a settlement of the same cost has none either.
        late.refund(1);
        late.settle(1);
        // The additional cost is charged to the present window.
        longer.charge(1);
        assert_eq!(pass().await, 200, "{name}");
        assert_eq!(pass().await, 429, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_above_a_shadow_s_limit_has_a_handle_with_nothing_to_settle() {
    let seen = Seen::default();
    let layer = builder("p").shadow().build().unwrap();
    let service = layer.layer(keeping(&seen));
    for _ in 0..10 {
        service.clone().oneshot(from("a")).await.unwrap();
    }
    service.clone().oneshot(from("a")).await.unwrap();
    let handle = seen.lock().unwrap().take().expect("as all others");
    let decisions: Vec<_> = handle.decisions().collect();
    assert_eq!((decisions[0].0, decisions[0].1.allowed), ("p", false));
    for correct in [RateLimitHandle::refund, RateLimitHandle::charge] {
        correct(&handle, 10);
    }
    handle.settle(0);
    service.clone().oneshot(from("a")).await.unwrap();
    let handle = seen.lock().unwrap().take().unwrap();
    let (_, decision) = handle.decisions().next().unwrap();
    assert_eq!((decision.allowed, decision.remaining), (false, 0));
}

#[tokio::test(start_paused = true)]
async fn an_axum_handler_extracts_the_handle_for_every_client() {
    use axum::{Extension, Router, body::Body, routing::get};

    let download = async |Extension(handle): Extension<RateLimitHandle>| {
        handle.settle(100);
        "hello"
    };
    for shadow in [false, true] {
        let layer = builder("p").exempt(|head| head.uri().path() == "/free");
        let layer = if shadow { layer.shadow() } else { layer };
        let app: Router = Router::new()
            .route("/", get(download))
            .route("/free", get(download))
            .layer(layer.build().unwrap());
        let status = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            app.clone().oneshot(request).await.unwrap().status()
        };
        assert_eq!(status("/").await, StatusCode::OK);
        assert_eq!(status("/free").await, StatusCode::OK);
        let above = if shadow {
            StatusCode::OK
        } else {
            StatusCode::TOO_MANY_REQUESTS
        };
        assert_eq!(status("/").await, above);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_two_layers_corrects_the_limits_of_both() {
    let seen = Seen::default();
    let (outer, inner) = (builder("outer"), builder("inner"));
    let service = ServiceBuilder::new()
        .layer(outer.build().unwrap())
        .layer(inner.build().unwrap())
        .service(keeping(&seen));
    service.clone().oneshot(from("a")).await.unwrap();
    let handle = seen.lock().unwrap().take().unwrap();
    let names: Vec<_> = handle.decisions().map(|(name, _)| name).collect();
    assert_eq!(names, ["inner", "outer"], "the nearest first");
    handle.policy("outer").unwrap().settle(1);
    handle.settle(4);
    assert_eq!(left(service.clone(), &seen).await, [99, 96]);
    // A handle of several layers settles once, like a handle of one layer.
    handle.settle(0);
    assert_eq!(left(service, &seen).await, [99, 96]);
}

#[tokio::test(start_paused = true)]
async fn a_name_of_two_policies_means_the_nearest() {
    let seen = Seen::default();
    let service = ServiceBuilder::new()
        .layer(builder("p").build().unwrap())
        .layer(builder("p").build().unwrap())
        .service(keeping(&seen));
    service.clone().oneshot(from("a")).await.unwrap();
    let handle = seen.lock().unwrap().take().unwrap();
    handle.policy("p").unwrap().settle(0);
    assert_eq!(left(service, &seen).await, [90, 100]);
}

#[tokio::test(start_paused = true)]
async fn a_refund_by_the_inner_layer_leaves_the_outer_one_charged() {
    let seen = Seen::default();
    let inner = builder("inner").refund_when(|_| true);
    let service = ServiceBuilder::new()
        .layer(builder("outer").build().unwrap())
        .layer(inner.build().unwrap())
        .service(keeping(&seen));
    service.clone().oneshot(from("a")).await.unwrap();
    assert_eq!(left(service, &seen).await, [90, 100]);
}

#[tokio::test(start_paused = true)]
async fn fields_of_two_layers_stand_side_by_side() {
    let mut service = ServiceBuilder::new()
        .layer(builder("outer").build().unwrap())
        .layer(builder("inner").build().unwrap())
        .service(Probe::default());
    let response = send(&mut service, get()).await;
    let lines: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
    assert_eq!(
        lines,
        [r#""inner";r=90;t=10"#, r#""outer";r=90;t=10"#],
        "one list over two lines"
    );
    for _ in 0..9 {
        send(&mut service, get()).await;
    }
    let rejected = send(&mut service, get()).await;
    assert_eq!(field(&rejected, "ratelimit"), Some(r#""outer";r=0;t=10"#));
}
