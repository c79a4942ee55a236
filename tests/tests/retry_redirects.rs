//! A client that follows redirects may have sent several requests before its response.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use axum::Router;
use axum::http::StatusCode;
use axum::response::Redirect;
use axum::routing::post;
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt};
use tower_jitter_retry::{Backoff, RetryLayer};

/// POST, redirect, GET: the order is placed, and the host of the next page is down.
#[tokio::test]
async fn a_redirect_to_a_host_that_is_down_does_not_prove_that_the_post_was_not_processed() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let down = format!("http://{}/thanks", closed.local_addr().unwrap());
    drop(closed);
    let orders = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&orders);
    let handler = move || {
        count.fetch_add(1, SeqCst);
        let down = down.clone();
        async move { Redirect::to(&down) } // 303
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router: Router = Router::new().route("/", post(handler));
    tokio::spawn(async move { axum::serve(listener, router).await });

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(&url).body("order").build().unwrap();
    let error = RetryLayer::http()
        .layer(client)
        .oneshot(request)
        .await
        .unwrap_err();
    assert!(error.is_connect(), "{error:?}");
    assert_eq!(orders.load(SeqCst), 1, "orders placed");
}

/// As above, but the next page answers 429. The POST itself got a 303.
#[tokio::test]
async fn a_429_behind_a_redirect_does_not_resend_the_post() {
    let orders = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&orders);
    let place = move || {
        count.fetch_add(1, SeqCst);
        async { Redirect::to("/thanks") } // 303
    };
    let refuse = || async { StatusCode::TOO_MANY_REQUESTS };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router: Router = Router::new()
        .route("/", post(place))
        .route("/thanks", axum::routing::get(refuse));
    tokio::spawn(async move { axum::serve(listener, router).await });

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(&url).body("order").build().unwrap();
    let response = RetryLayer::http()
        .layer(client)
        .oneshot(request)
        .await
        .unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(orders.load(SeqCst), 1, "orders placed");
}

/// A client does not send the fragment, so no response comes from a URL with one.
#[tokio::test]
async fn a_429_resends_a_post_to_a_url_with_a_fragment() {
    let orders = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&orders);
    let refuse_once = move || {
        let refused = count.fetch_add(1, SeqCst) == 0;
        async move {
            match refused {
                true => StatusCode::TOO_MANY_REQUESTS,
                false => StatusCode::OK,
            }
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/orders?a=b#new", listener.local_addr().unwrap());
    let router: Router = Router::new().route("/orders", post(refuse_once));
    tokio::spawn(async move { axum::serve(listener, router).await });

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(&url).body("order").build().unwrap();
    let retry = RetryLayer::builder().backoff(Backoff::none()).http();
    let service = retry.build().unwrap().layer(client);
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(orders.load(SeqCst), 2);
}
