//! A hedging service whose client hedges, too.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use http::{Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tests::soon;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tower::{Layer, ServiceExt};
use tower_hedge_latency::{HedgeLayer, Http};

fn hedge() -> HedgeLayer<Http> {
    let builder = HedgeLayer::builder().fixed(Duration::from_millis(40));
    builder.http().build().unwrap()
}

fn client() -> Client<HttpConnector, Body> {
    Client::builder(TokioExecutor::new()).build_http()
}

async fn serve(router: Router) -> Uri {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url.parse().unwrap()
}

/// Two proxies forward every request with all of its fields, and both hedge.
#[tokio::test]
async fn a_hedge_stays_one_however_many_servers_it_crosses() {
    let fields = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&fields);
    let upstream = any(move |request: Request<Body>| async move {
        let field = request.headers().get("x-hedge-attempt").cloned();
        seen.lock().unwrap().push(field);
        sleep(Duration::from_millis(400)).await;
    });
    let mut next = serve(Router::new().route("/", upstream)).await;
    for _ in 0..2 {
        let service = hedge().layer(client());
        let proxy = any(move |mut request: Request<Body>| async move {
            *request.uri_mut() = next;
            service.oneshot(request).await.unwrap().map(Body::new)
        });
        next = serve(Router::new().route("/", proxy)).await;
    }
    let request = Request::get(next).body(Body::empty()).unwrap();
    let response = soon(hedge().layer(client()).oneshot(request)).await;
    assert_eq!(response.unwrap().status(), StatusCode::OK);
    // Each of three hops hedges the first attempt, and no hop hedges a hedge: 4 attempts instead of 8.
    let fields = fields.lock().unwrap();
    let hedges = fields.iter().filter(|field| field.is_some()).count();
    assert_eq!((fields.len(), hedges), (4, 3));
}
