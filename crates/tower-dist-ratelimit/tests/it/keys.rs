//! The keys of requests.

mod addresses;
mod bytes;
mod missing;
mod once;
mod routes;

use std::net::SocketAddr;

use http::{Request, StatusCode};
use tower::Layer;
use tower_dist_ratelimit::{
    MissingKey, Policy, RateLimit, RateLimitLayer, TrustedProxies,
    backend::Memory,
    key::{self, KeyExtractor, KeySink, RequestParts},
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
async fn without_a_key_all_requests_share_one_bucket() {
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
    let mut service = service(policy.missing_key(MissingKey::Reject));
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
async fn each_bearer_token_is_a_client() {
    let mut service = service(Policy::new("token", slow(1)).by(key::bearer()));
    for number in 0..1_000 {
        let request = with("authorization", &format!("Bearer {number}"));
        assert_eq!(send(&mut service, request).await.status(), OK, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_is_a_key() {
    #[derive(Clone)]
    struct User(u64);
    let policy = Policy::new("user", slow(1)).by(key::extension(|user: &User| user.0));
    let mut service = service(policy.missing_key(MissingKey::Reject));
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
    let mut service = service(policy.missing_key(MissingKey::Reject));
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
