//! Whose bucket it is.

use std::net::SocketAddr;

use http::{Request, StatusCode};
use tower::Layer;
use tower_dist_ratelimit::{MissingKey, Policy, RateLimit, RateLimitLayer, backend::Memory, key};

use crate::support::{Probe, field, from, get, send, slow};

const OK: StatusCode = StatusCode::OK;
const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn service(policy: Policy) -> RateLimit<Probe> {
    RateLimitLayer::builder(Memory::default())
        .limit(policy)
        .build()
        .unwrap()
        .layer(Probe::default())
}

#[tokio::test(start_paused = true)]
async fn without_a_key_all_share_one_bucket() {
    let mut service = service(Policy::new("all", slow(1)));
    assert_eq!(send(&mut service, from("a")).await.status(), OK);
    assert_eq!(send(&mut service, from("b")).await.status(), REFUSED);
}

#[tokio::test(start_paused = true)]
async fn each_key_has_its_bucket() {
    let mut service = service(Policy::new("each", slow(1)).by(key::header("key")));
    assert_eq!(send(&mut service, from("a")).await.status(), OK);
    assert_eq!(send(&mut service, from("b")).await.status(), OK);
    assert_eq!(send(&mut service, from("a")).await.status(), REFUSED);
}

#[tokio::test(start_paused = true)]
async fn keys_of_several_parts_are_not_confused() {
    let parts = |a: &str, b: &str| {
        Request::builder()
            .header("a", a)
            .header("b", b)
            .body(())
            .unwrap()
    };
    let mut service = service(Policy::new("pair", slow(1)).by_fn(|head| {
        (
            head.headers().get("a").cloned(),
            head.headers().get("b").cloned(),
        )
    }));
    assert_eq!(send(&mut service, parts("a_b", "c")).await.status(), OK);
    assert_eq!(send(&mut service, parts("a", "b_c")).await.status(), OK);
    assert_eq!(
        send(&mut service, parts("a_b", "c")).await.status(),
        REFUSED
    );
}

#[tokio::test(start_paused = true)]
async fn borrowed_keys_need_no_copy() {
    let mut service = service(Policy::new("path", slow(1)).by_str(|head| Some(head.uri().path())));
    let to = |path: &str| Request::builder().uri(path).body(()).unwrap();
    assert_eq!(send(&mut service, to("/a")).await.status(), OK);
    assert_eq!(send(&mut service, to("/b")).await.status(), OK);
    assert_eq!(send(&mut service, to("/a")).await.status(), REFUSED);
}

#[tokio::test(start_paused = true)]
async fn hostile_keys_have_their_buckets_too() {
    let mut service = service(Policy::new("each", slow(1)).by(key::header("key")));
    let long = "x".repeat(64 * 1024);
    let longer = format!("{long}y");
    for hostile in ["", "{}", "{a}:{b}", "per-client", &long, &longer] {
        assert_eq!(send(&mut service, from(hostile)).await.status(), OK);
        assert_eq!(send(&mut service, from(hostile)).await.status(), REFUSED);
    }
}

#[tokio::test(start_paused = true)]
async fn all_who_lack_the_key_share_a_bucket_by_default() {
    let mut service = service(Policy::new("each", slow(1)).by(key::header("key")));
    assert_eq!(send(&mut service, get()).await.status(), OK);
    assert_eq!(send(&mut service, get()).await.status(), REFUSED);
    assert_eq!(
        send(&mut service, from("")).await.status(),
        OK,
        "an empty key is a key"
    );
}

#[tokio::test(start_paused = true)]
async fn a_policy_can_skip_who_lacks_the_key() {
    let policy = Policy::new("each", slow(1))
        .by(key::header("key"))
        .missing_key(MissingKey::Skip);
    let mut service = service(policy);
    for _ in 0..3 {
        let response = send(&mut service, get()).await;
        assert_eq!(
            (response.status(), field(&response, "ratelimit")),
            (OK, None)
        );
    }
    send(&mut service, from("a")).await;
    assert_eq!(send(&mut service, from("a")).await.status(), REFUSED);
}

#[tokio::test(start_paused = true)]
async fn a_policy_can_refuse_who_lacks_the_key_and_charges_nobody() {
    let mut service = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("all", slow(1)))
        .limit(
            Policy::new("each", slow(1))
                .by(key::header("key"))
                .missing_key(MissingKey::Refuse),
        )
        .build()
        .unwrap()
        .layer(Probe::default());
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(field(&response, "retry-after"), None);
    assert_eq!(
        &response.body()[..],
        br#"{"type":"about:blank","title":"Bad Request","status":400}"#
    );
    assert_eq!(send(&mut service, from("a")).await.status(), OK);
}

#[tokio::test(start_paused = true)]
async fn a_peer_is_its_address_or_its_ipv6_network() {
    let mut service = service(Policy::new("peer", slow(1)).by(key::peer_addr()));
    let peer = |address: &str| {
        let mut request = get();
        request
            .extensions_mut()
            .insert(address.parse::<SocketAddr>().unwrap());
        request
    };
    assert_eq!(
        send(&mut service, peer("192.0.2.1:1000")).await.status(),
        OK
    );
    assert_eq!(
        send(&mut service, peer("[::ffff:192.0.2.1]:1001"))
            .await
            .status(),
        REFUSED
    );
    assert_eq!(
        send(&mut service, peer("[2001:db8:0:1::1]:1000"))
            .await
            .status(),
        OK
    );
    assert_eq!(
        send(&mut service, peer("[2001:db8:0:1:f::2]:1000"))
            .await
            .status(),
        REFUSED
    );
    assert_eq!(
        send(&mut service, peer("[2001:db8:0:2::1]:1000"))
            .await
            .status(),
        OK
    );
}

#[tokio::test(start_paused = true)]
async fn costs_come_from_the_request_and_zero_is_free() {
    let policy = Policy::new("weighted", slow(10)).cost_fn(|head| {
        head.headers()
            .get("key")
            .and_then(|cost| cost.to_str().ok()?.parse().ok())
            .unwrap_or(1)
    });
    let mut service = service(policy);
    assert_eq!(
        field(&send(&mut service, from("7")).await, "ratelimit"),
        Some(r#""weighted";r=3;t=7"#)
    );
    assert_eq!(
        field(&send(&mut service, from("4")).await, "ratelimit"),
        Some(r#""weighted";r=3;t=1"#)
    );
    assert_eq!(
        field(&send(&mut service, from("0")).await, "ratelimit"),
        Some(r#""weighted";r=3;t=7"#)
    );
    assert_eq!(send(&mut service, from("3")).await.status(), OK);
    assert_eq!(send(&mut service, from("0")).await.status(), OK);
    assert_eq!(send(&mut service, from("1")).await.status(), REFUSED);
}
