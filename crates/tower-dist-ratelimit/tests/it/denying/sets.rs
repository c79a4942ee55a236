//! Rejections by one of several policies.

use http::Request;
use tower::Layer;
use tower_dist_ratelimit::{RateLimitLayer, key};

use super::*;
use crate::support::{Probe, send};

fn from(client: &str) -> Request<()> {
    let request = Request::builder().header("key", client);
    request.body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_set_is_rejected_only_for_keys_that_one_of_its_policies_rejects() {
    let wan = Wan::away(AWAY);
    let layer = RateLimitLayer::builder(wan.clone())
        .limit(Policy::new("client", Quota::per_second(2)).by(key::header("key")))
        .limit(Policy::new("all", Quota::per_second(1_000)))
        .build()
        .unwrap();
    let mut service = layer.layer(Probe::default());
    for status in [200, 200, 429] {
        assert_eq!(send(&mut service, from("one")).await.status(), status);
    }
    let trips = wan.trips();
    let rejected = send(&mut service, from("one")).await;
    assert_eq!(rejected.status(), 429);
    assert_eq!(
        rejected.headers()["ratelimit"],
        "\"client\";r=0;t=1, \"all\";r=1000;t=0"
    );
    assert_eq!(wan.trips(), trips);
    assert_eq!(send(&mut service, from("other")).await.status(), 200);
    assert_eq!(wan.trips(), trips + 1);
}

/// A cached rejection reports the remaining tokens of the other policies. Only the backend knows them if the
/// request may cost as many as remain.
#[tokio::test(start_paused = true)]
async fn a_higher_cost_of_a_policy_that_has_not_rejected_goes_to_the_backend() {
    let wan = Wan::away(AWAY);
    let cost = |head: key::RequestParts<'_>| match head.method().as_str() {
        "PUT" => 2_000,
        _ => 1,
    };
    let layer = RateLimitLayer::builder(wan.clone())
        .limit(Policy::new("client", Quota::per_second(1)).by(key::header("key")))
        .limit(Policy::new("all", Quota::per_second(1_000)).cost_fn(cost))
        .build()
        .unwrap();
    let mut service = layer.layer(Probe::default());
    for status in [200, 429] {
        assert_eq!(send(&mut service, from("one")).await.status(), status);
    }
    let mut put = from("one");
    *put.method_mut() = http::Method::PUT;
    let rejected = send(&mut service, put).await;
    // One policy can never admit this cost, so the response has no `Retry-After`.
    assert_eq!(rejected.headers().get("retry-after"), None);
    assert_eq!(
        rejected.headers()["ratelimit"],
        "\"client\";r=0;t=1, \"all\";r=1000"
    );
}

#[tokio::test(start_paused = true)]
async fn after_two_policies_reject_the_first_to_have_room_is_checked_again() {
    let wan = Wan::away(Duration::ZERO);
    let layer = RateLimitLayer::builder(wan.clone())
        .limit(Policy::new("client", Quota::per_second(2)).by(key::header("key")))
        .limit(Policy::new("all", Quota::new(2, Duration::from_secs(4))))
        .build()
        .unwrap();
    let mut service = layer.layer(Probe::default());
    for (status, state) in [
        (200, "\"client\";r=1;t=1, \"all\";r=1;t=2"),
        (200, "\"client\";r=0;t=1, \"all\";r=0;t=4"),
        (429, "\"client\";r=0;t=1, \"all\";r=0;t=2"),
    ] {
        let response = send(&mut service, from("one")).await;
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["ratelimit"], state);
    }
    advance(Duration::from_millis(500)).await;
    let response = send(&mut service, from("one")).await;
    let state = "\"client\";r=1;t=1, \"all\";r=0;t=2";
    assert_eq!(response.headers()["ratelimit"], state);
}
