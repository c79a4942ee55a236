//! The failures that gRPC's throttle counts.

use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};
use tower_hedge_latency::{Budget, Mode};
use tower_test::mock;

use crate::support::*;

/// The number of failures that would close a throttle of ten tokens now.
fn failures_until_closed(throttle: &Budget) -> u32 {
    (0..)
        .find(|_| {
            let closed = throttle.withdraw().is_none();
            throttle.record_failure();
            closed
        })
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_is_off_counts_successes_as_well_as_failures() {
    let throttle = Budget::grpc_throttle(10, 1.0);
    let layer = fixed(10).mode(Mode::Off).budget(throttle.clone());
    let (mut service, mut handle) = mock::spawn_layer::<u32, u32, _>(layer.build().unwrap());
    for good in [false, false, false, true, true] {
        assert_ready_ok!(service.poll_ready());
        let mut call = task::spawn(service.call(7));
        assert_pending!(call.poll());
        let primary = next(&mut handle).await;
        match good {
            true => primary.send_response(1),
            false => primary.send_error("unavailable"),
        }
        assert_eq!(assert_ready!(call.poll()).is_ok(), good);
    }
    assert_eq!(failures_until_closed(&throttle), 4, "10 - 3 + 2 = 9");
}

/// gRFC A6: "every outgoing RPC (regardless of service or method invoked)".
#[cfg(feature = "grpc")]
#[tokio::test(start_paused = true)]
async fn calls_of_methods_that_are_not_hedged_count_as_well() {
    use std::convert::Infallible;

    use http::{Request, Response};
    use http_body_util::Empty;
    use tower::{Layer, ServiceExt, service_fn};
    use tower_hedge_latency::HedgeLayer;

    type Body = Empty<bytes::Bytes>;

    let throttle = Budget::grpc_throttle(10, 1.0);
    let layer = HedgeLayer::builder().fixed(ms(10)).grpc();
    let layer = layer.idempotent_methods(["/greeter/Listed"]);
    let layer = layer.budget(throttle.clone()).build().unwrap();
    let server = service_fn(|request: Request<Body>| async move {
        let response = Response::builder();
        let response = match request.uri().query() {
            Some("fails") => response.header("grpc-status", "14"),
            _ => response,
        };
        Ok::<_, Infallible>(response.body(Body::new()).unwrap())
    });
    let service = layer.layer(server);
    for path in [
        "Other?fails",
        "Other?fails",
        "Other?fails",
        "Other",
        "Other",
    ] {
        let request = Request::post(format!("/greeter/{path}"));
        let request = request.body(Body::new()).unwrap();
        service.clone().oneshot(request).await.unwrap();
    }
    assert_eq!(layer.handle().counts().ineligible, 5);
    assert_eq!(failures_until_closed(&throttle), 4, "10 - 3 + 2 = 9");
}

/// A layer above records the outcome of the call, so this layer records the failures that the layer above does not
/// receive.
#[tokio::test(start_paused = true)]
async fn with_a_shared_throttle_only_failures_that_the_caller_does_not_see_are_recorded() {
    for (outcomes, expected) in [
        // No failure is hidden: the caller receives the primary's failure.
        ([Some(false), None], 5),
        ([Some(false), Some(false)], 4),
        ([Some(false), Some(true)], 4),
        ([Some(true), Some(false)], 4),
    ] {
        let throttle = Budget::grpc_throttle(10, 0.1);
        let layer = fixed(10).shared_budget(throttle.clone());
        let (mut call, mut handle) = call!(layer);
        assert_pending!(call.poll());
        let mut attempts = vec![next(&mut handle).await];
        if outcomes[1].is_some() {
            advance(ms(10)).await;
            assert_pending!(call.poll());
            attempts.push(next(&mut handle).await);
        }
        // Failures come first, so that each of them ends before the call.
        let mut all: Vec<_> = attempts.into_iter().zip(outcomes).collect();
        all.sort_by_key(|(_, outcome)| *outcome);
        for (attempt, outcome) in all {
            match outcome {
                Some(true) => attempt.send_response(1),
                _ => attempt.send_error("unavailable"),
            }
            let _ = call.poll();
        }
        assert_eq!(failures_until_closed(&throttle), expected, "{outcomes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_a_caller_leaves_behind_is_recorded_on_a_shared_throttle() {
    let throttle = Budget::grpc_throttle(10, 0.1);
    let (mut call, mut handle) = call!(fixed(10).shared_budget(throttle.clone()));
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(10)).await;
    assert_pending!(call.poll());
    let _hedge = next(&mut handle).await;
    primary.send_error("unavailable");
    assert_pending!(call.poll());
    drop(call);
    assert_eq!(failures_until_closed(&throttle), 4);
}
