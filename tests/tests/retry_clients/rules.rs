//! Rules classify outcomes; the protocol decides which requests are safe to resend.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tests::clients::{hyper, reqwest};
use tests::soon;
use tokio::net::TcpListener;
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt};
use tower_jitter_retry::{
    Backoff, Deadline, Http, HttpOutcome, RetryInfo, RetryLayer, RetryLayerBuilder, RetryOverride,
    StopReason, Verdict,
};

/// Long enough for a request to arrive on a busy machine.
const LIMIT: Duration = Duration::from_millis(500);

fn builder() -> RetryLayerBuilder<Http> {
    RetryLayer::builder().http().backoff(Backoff::none())
}

/// Counts requests, and answers with the status in the path, or never.
async fn server() -> (String, Arc<AtomicUsize>) {
    let requests = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&requests);
    let router: Router = Router::new().fallback(move |request: Request<Body>| async move {
        count.fetch_add(1, SeqCst);
        let path = request.uri().path().trim_start_matches('/');
        match path.parse::<u16>() {
            Ok(status) => StatusCode::from_u16(status).unwrap(),
            Err(_) => std::future::pending().await,
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, requests)
}

/// The number of requests that reach the server through hyper's client and through reqwest's.
async fn requests(
    set: impl Fn(RetryLayerBuilder<Http>) -> RetryLayerBuilder<Http>,
    method: &Method,
    path: &str,
) -> [usize; 2] {
    let layer = || set(builder()).attempt_timeout(LIMIT).build().unwrap();
    let (url, from_hyper) = server().await;
    let request = Request::builder()
        .method(method)
        .uri(format!("{url}/{path}"));
    let request = request.body(Body::from("order")).unwrap();
    let client = ServiceBuilder::new()
        .layer(layer())
        .map_err(BoxError::from)
        .service(hyper(false));
    let _: Result<Response<Incoming>, BoxError> = soon(client.oneshot(request)).await;

    let (url, from_reqwest) = server().await;
    let client = reqwest(false);
    let request = client.request(method.clone(), format!("{url}/{path}"));
    let request = request.body("order").build().unwrap();
    let _ = soon(layer().layer(client).oneshot(request)).await;
    [from_hyper.load(SeqCst), from_reqwest.load(SeqCst)]
}

#[tokio::test]
async fn a_post_is_sent_once_although_a_rule_makes_its_outcome_retryable() {
    for wish in [
        Verdict::transient(),
        Verdict::throttled(),
        Verdict::timeout(),
        Verdict::Unprocessed,
    ] {
        let says = |builder: RetryLayerBuilder<Http>| builder.classify(move |_| wish);
        for path in ["200", "404", "500", "503", "never"] {
            let sent = requests(says, &Method::POST, path).await;
            assert_eq!(sent, [1, 1], "{wish:?} of {path}");
        }
        assert_eq!(
            requests(says, &Method::PUT, "404").await,
            [3, 3],
            "{wish:?}"
        );
        // The server rejects before it processes.
        assert_eq!(
            requests(says, &Method::POST, "429").await,
            [3, 3],
            "{wish:?}"
        );
    }
}

#[tokio::test]
async fn a_post_that_is_declared_idempotent_is_resent() {
    let declared = |builder: RetryLayerBuilder<Http>| {
        builder.idempotent_if(|request| {
            request.method() == Method::POST && request.authority().is_some()
        })
    };
    for path in ["500", "503", "never"] {
        assert_eq!(
            requests(declared, &Method::POST, path).await,
            [3, 3],
            "{path}"
        );
        assert_eq!(
            requests(declared, &Method::PATCH, path).await,
            [1, 1],
            "{path}"
        );
    }
    assert_eq!(requests(declared, &Method::POST, "404").await, [1, 1]);
}

#[tokio::test]
async fn a_rule_sees_the_request_and_the_attempt_behind_an_outcome() {
    let once_for_this_path = |builder: RetryLayerBuilder<Http>| {
        builder.classify(|outcome: HttpOutcome<'_>| match outcome.status() {
            Some(StatusCode::NOT_FOUND)
                if outcome.attempt().number() == 1
                    && outcome.method() == Method::GET
                    && outcome.path() == "/404"
                    && outcome
                        .authority()
                        .is_some_and(|host| host.starts_with("127.0.0.1:"))
                    && outcome.is_idempotent() =>
            {
                Verdict::transient()
            }
            _ => outcome.verdict(),
        })
    };
    assert_eq!(
        requests(once_for_this_path, &Method::GET, "404").await,
        [2, 2]
    );
    assert_eq!(
        requests(once_for_this_path, &Method::PUT, "404").await,
        [1, 1]
    );
}

#[tokio::test]
async fn listed_statuses_are_retried_for_idempotent_requests() {
    let locked = |builder: RetryLayerBuilder<Http>| builder.retry_statuses([StatusCode::LOCKED]);
    assert_eq!(requests(locked, &Method::GET, "423").await, [3, 3]);
    assert_eq!(requests(locked, &Method::POST, "423").await, [1, 1]);
    assert_eq!(requests(locked, &Method::GET, "409").await, [1, 1]);
}

#[tokio::test]
async fn deadlines_and_retry_info_survive_a_rule() {
    let layer = builder()
        .classify(|_| Verdict::transient())
        .build()
        .unwrap();
    for (deadline, attempts, stop) in [
        (Duration::ZERO, 1, StopReason::DeadlineExceeded),
        (Duration::from_secs(60), 3, StopReason::AttemptsExhausted),
    ] {
        let (url, requests) = server().await;
        let own = RetryOverride::new().deadline(Deadline::after(deadline));
        let request = Request::get(format!("{url}/404")).extension(own);
        let request = request.body(Body::empty()).unwrap();
        let response = soon(layer.layer(hyper(false)).oneshot(request))
            .await
            .unwrap();
        assert_eq!(requests.load(SeqCst), attempts);
        let info: &RetryInfo = response.extensions().get().unwrap();
        assert_eq!(info.stop, stop);
    }
}

#[tokio::test]
async fn nested_layers_with_rules_do_not_multiply() {
    let layer = || {
        builder()
            .classify(|_| Verdict::transient())
            .build()
            .unwrap()
    };
    let (url, requests) = server().await;
    let request = Request::get(format!("{url}/404"))
        .body(Body::empty())
        .unwrap();
    let stack = layer().layer(layer().layer(hyper(false)));
    soon(stack.oneshot(request)).await.unwrap();
    assert_eq!(requests.load(SeqCst), 3);
}
