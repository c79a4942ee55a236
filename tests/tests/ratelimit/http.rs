//! Rate limits with axum and hyper.

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::{Layer, service_fn};
use tower_dist_ratelimit::key::{self, KeyExtractor};
use tower_dist_ratelimit::{Policy, RateLimitLayer, TrustedProxies, backend::Memory};

use crate::{client, few, layer, serve};

async fn rejected(response: impl Into<Response<reqwest::Body>>, policy: &str) {
    let response = response.into();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let headers = response.headers();
    assert_eq!(headers["content-type"], "application/problem+json");
    // One token a minute.
    let shown = headers["ratelimit-policy"].to_str().unwrap();
    let expected = [1, 2].map(|burst| format!("\"{policy}\";q={burst};w={}", 60 * burst));
    assert!(expected.iter().any(|one| one == shown), "{shown}");
    assert!(
        headers["ratelimit"]
            .to_str()
            .unwrap()
            .starts_with(&format!("\"{policy}\";r=0;t="))
    );
    let wait: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("quota-exceeded"));
}

#[tokio::test]
async fn an_axum_router_rejectes_by_key_or_else_by_peer() {
    let by = key::header("x-api-key").or(key::peer_addr());
    let router: Router = Router::new().route("/", get(async || "hello"));
    let url = serve(router.layer(layer(Policy::new("client", few(2)).by(by)))).await;
    let (client, other) = (client(), client());
    for _ in 0..2 {
        let response = client.get(&url).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert!(response.headers().contains_key("ratelimit"));
    }
    rejected(client.get(&url).send().await.unwrap(), "client").await;
    // Another connection from the same host is the same client, and another key is another client.
    rejected(other.get(&url).send().await.unwrap(), "client").await;
    let keyed = client.get(&url).header("x-api-key", "k");
    assert_eq!(keyed.send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_router_without_connect_info_answers_500_with_the_remedy() {
    let router: Router = Router::new().route("/", get(async || "hello"));
    let router = router.layer(layer(Policy::new("client", few(2)).by(key::peer_addr())));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    for _ in 0..3 {
        let response = client().get(&url).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = response.text().await.unwrap();
        assert!(
            body.contains("into_make_service_with_connect_info"),
            "{body}"
        );
    }
}

#[tokio::test]
async fn a_router_decides_on_the_limits_of_its_routes_and_of_all_together() {
    let login = Policy::new("login", few(1));
    let login = login.only_if(|head| {
        let route = head.extensions().get::<axum::extract::MatchedPath>();
        route.is_some_and(|route| route.as_str() == "/login/{user}")
    });
    let both = RateLimitLayer::builder(Memory::default()).limit(Policy::new("all", few(3)));
    let router: Router = Router::new()
        .route("/", get(async || "hello"))
        .route("/login/{user}", get(async || "hello"));
    let url = serve(router.layer(both.limit(login).build().unwrap())).await;
    let client = client();
    for (path, status) in [
        ("login/ada", 200),
        ("login/grace", 429),
        ("login/grace", 429),
        ("", 200),
        ("", 200),
        ("", 429),
    ] {
        let response = client.get(format!("{url}{path}")).send().await.unwrap();
        assert_eq!(response.status(), status, "{path}");
    }
}

#[tokio::test]
async fn an_axum_router_behind_a_trusted_proxy_goes_by_the_client() {
    let by = key::client_ip(TrustedProxies::private());
    let router: Router = Router::new().route("/", get(async || "hello"));
    let url = serve(router.layer(layer(Policy::new("client", few(1)).by(by)))).await;
    let client = client();
    let from = async |list: &str| {
        let request = client.get(&url).header("x-forwarded-for", list);
        request.send().await.unwrap()
    };
    assert_eq!(from("203.0.113.1").await.status(), StatusCode::OK);
    assert_eq!(from("203.0.113.2").await.status(), StatusCode::OK);
    rejected(from("198.51.100.9, 203.0.113.1").await, "client").await;
    rejected(from("198.51.100.9, 203.0.113.2, 10.0.0.1").await, "client").await;
}

#[tokio::test]
async fn a_hyper_service_rejectes_over_http_1_and_2() {
    let inner = service_fn(async |_: Request<hyper::body::Incoming>| {
        Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::from("hello")))
    });
    let service = layer(Policy::new("each", few(2)).by(key::header("key"))).layer(inner);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            // One clone for each connection, as in frameworks.
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(socket), service)
                    .await
                    .map_err(|error| error.to_string())
            });
        }
    });
    for (key, http2) in [("a", false), ("b", true)] {
        let mut client = Client::builder(TokioExecutor::new());
        let client: Client<_, Full<Bytes>> = client.http2_only(http2).build_http();
        let send = async || {
            let request = Request::get(&url).header("key", key);
            let response = client.request(request.body(Full::default()).unwrap());
            response.await.unwrap().map(reqwest::Body::wrap)
        };
        for _ in 0..2 {
            let response = send().await;
            assert_eq!(response.status(), StatusCode::OK);
            let body = response.into_body().collect().await.unwrap();
            assert_eq!(body.to_bytes(), "hello");
        }
        rejected(send().await, "each").await;
    }
}
