//! Whose bucket it is.

use std::net::SocketAddr;

use http::{Request, StatusCode};
use tower::Layer;
use tower_dist_ratelimit::{
    MissingKey, Policy, RateLimit, RateLimitLayer, TrustedProxies,
    backend::Memory,
    key::{self, KeyExtractor},
};

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

fn with(name: &str, value: &str) -> Request<()> {
    Request::builder().header(name, value).body(()).unwrap()
}

fn by(address: &str, mut request: Request<()>) -> Request<()> {
    let peer = address.parse::<SocketAddr>().unwrap();
    request.extensions_mut().insert(peer);
    request
}

#[tokio::test(start_paused = true)]
async fn a_bearer_token_is_a_key_however_its_scheme_is_written() {
    let policy = Policy::new("token", slow(1)).by(key::bearer());
    let mut service = service(policy.missing_key(MissingKey::Refuse));
    for (credentials, status) in [
        ("Bearer a.b.c", OK),
        ("bearer   a.b.c", REFUSED),
        ("BEARER a.b.c ", REFUSED),
        ("Bearer other", OK),
        ("Bearer ", StatusCode::BAD_REQUEST),
        ("Bearer", StatusCode::BAD_REQUEST),
        ("Basic a.b.c", StatusCode::BAD_REQUEST),
        ("", StatusCode::BAD_REQUEST),
    ] {
        let response = send(&mut service, with("authorization", credentials)).await;
        assert_eq!(response.status(), status, "{credentials:?}");
    }
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test(start_paused = true)]
async fn an_extension_is_a_key() {
    #[derive(Clone)]
    struct User(u64);
    let policy = Policy::new("user", slow(1)).by(key::extension(|user: &User| user.0));
    let mut service = service(policy.missing_key(MissingKey::Refuse));
    let user = |id| {
        let mut request = get();
        request.extensions_mut().insert(User(id));
        request
    };
    assert_eq!(send(&mut service, user(1)).await.status(), OK);
    assert_eq!(send(&mut service, user(2)).await.status(), OK);
    assert_eq!(send(&mut service, user(1)).await.status(), REFUSED);
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test(start_paused = true)]
async fn one_key_or_else_another_and_never_the_one_for_the_other() {
    // The second header of the same text is another client than the first.
    let either = key::header("key").or(key::header("other").or(key::peer_addr()));
    let policy = Policy::new("either", slow(1)).by(either);
    let mut service = service(policy.missing_key(MissingKey::Refuse));
    assert_eq!(send(&mut service, from("a")).await.status(), OK);
    assert_eq!(send(&mut service, with("other", "a")).await.status(), OK);
    assert_eq!(send(&mut service, from("a")).await.status(), REFUSED);
    let both = by("192.0.2.1:1", with("other", "a"));
    assert_eq!(send(&mut service, both).await.status(), REFUSED);
    let peer = || by("192.0.2.1:1", get());
    assert_eq!(send(&mut service, peer()).await.status(), OK);
    assert_eq!(send(&mut service, peer()).await.status(), REFUSED);
    // Bytes that are an address poses as none: [192, 0, 2, 2], as a header's.
    let posing = http::HeaderValue::from_bytes(&[192, 168, 200, 201]).unwrap();
    let mut request = get();
    request.headers_mut().insert("key", posing);
    assert_eq!(send(&mut service, request).await.status(), OK);
    let posed_as = by("192.168.200.201:1", get());
    assert_eq!(send(&mut service, posed_as).await.status(), OK);
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

proptest::proptest! {
    #[test]
    fn no_header_bytes_panic_or_let_anybody_past_the_limit(
        name in 0..4_usize,
        mut value in proptest::collection::vec(b' '..=255, 0..200),
    ) {
        // What is left can be in a header.
        value.retain(|&byte| byte != 127);
        let name = ["key", "authorization", "x-forwarded-for", "forwarded"][name];
        let value = http::HeaderValue::from_bytes(&value).unwrap();
        let proxies = TrustedProxies::private;
        let ip = key::client_ip(proxies()).or(key::client_ip(proxies().forwarded()));
        let by = key::bearer().or(key::header("key")).or(ip);
        let policy = Policy::new("any", slow(1)).by(by);
        let layer = RateLimitLayer::builder(Memory::with_capacity(16)).limit(policy);
        let mut service = layer.build().unwrap().layer(Probe::default());
        let mut request = by_peer();
        request.headers_mut().insert(name, value);
        let again = request.clone();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            assert_eq!(send(&mut service, request).await.status(), OK);
            assert_eq!(send(&mut service, again).await.status(), REFUSED);
        });
    }
}

/// From a proxy that is trusted.
fn by_peer() -> Request<()> {
    by("10.0.0.1:1", get())
}

#[tokio::test(start_paused = true)]
async fn the_same_text_in_either_place_is_two_keys() {
    let either = key::header("key").or(key::header("other"));
    let mut service = service(Policy::new("either", slow(1)).by(either));
    assert_eq!(send(&mut service, from("a")).await.status(), OK);
    assert_eq!(send(&mut service, with("other", "a")).await.status(), OK);
    assert_eq!(send(&mut service, from("a")).await.status(), REFUSED);
    let other = with("other", "a");
    assert_eq!(send(&mut service, other).await.status(), REFUSED);
}

#[tokio::test(start_paused = true)]
async fn two_keys_make_one_and_both_are_needed() {
    let policy = Policy::new("pair", slow(1)).by((key::header("key"), key::method()));
    let mut service = service(policy.missing_key(MissingKey::Refuse));
    let post = |key: &str| {
        let mut request = from(key);
        *request.method_mut() = http::Method::POST;
        request
    };
    assert_eq!(send(&mut service, from("a")).await.status(), OK);
    assert_eq!(send(&mut service, post("a")).await.status(), OK);
    assert_eq!(send(&mut service, post("a")).await.status(), REFUSED);
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test(start_paused = true)]
async fn clients_behind_a_trusted_proxy_are_told_apart() {
    let proxies = TrustedProxies::none().cidr("10.0.0.0/8");
    let mut service = service(Policy::new("client", slow(1)).by(key::client_ip(proxies)));
    let client = |list: &str| by("10.0.0.1:1", with("x-forwarded-for", list));
    assert_eq!(send(&mut service, client("203.0.113.1")).await.status(), OK);
    assert_eq!(send(&mut service, client("203.0.113.2")).await.status(), OK);
    // tower_governor takes the leftmost, which the client itself has written.
    let spoofed = client("198.51.100.1, 203.0.113.1");
    assert_eq!(send(&mut service, spoofed).await.status(), REFUSED);
    // axum_gcra cannot read these.
    let ipv6 = |host: &str| client(&format!("[2001:db8::{host}]:443"));
    assert_eq!(send(&mut service, ipv6("1")).await.status(), OK);
    assert_eq!(send(&mut service, ipv6("2")).await.status(), REFUSED);
}

#[cfg(feature = "axum-08")]
#[tokio::test(start_paused = true)]
async fn an_endpoint_is_a_route_and_a_method() {
    use axum::{Router, body::Body, routing::any};
    use tower::ServiceExt;

    let policy = Policy::new("endpoint", slow(1)).by((key::matched_path(), key::method()));
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(policy)
        .build()
        .unwrap();
    let router: Router = Router::new()
        .route("/users/{id}", any(async || ()))
        .route("/", any(async || ()))
        .layer(layer);
    for (method, path, status) in [
        ("GET", "/users/1", OK),
        ("GET", "/users/2", REFUSED),
        ("POST", "/users/2", OK),
        ("GET", "/", OK),
        ("GET", "/?again", REFUSED),
    ] {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status, "{method} {path}");
    }
}
