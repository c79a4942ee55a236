use super::*;

use std::sync::Arc;

use http_body_util::BodyExt;

/// Serves `app` on a free port; returns its URL.
async fn serve(app: Router) -> Uri {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(axum::serve(listener, app).into_future());
    format!("http://{addr}/").parse().unwrap()
}

/// Serves the service in front of an upstream that answers request n, counted from 0, with `upstream(n)`. Returns the
/// service's URL and the number of requests to the upstream.
async fn before<F, R>(upstream: F) -> (Uri, Arc<AtomicU32>)
where
    F: Fn(u32) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = (StatusCode, &'static str)> + Send + 'static,
{
    let calls = Arc::new(AtomicU32::new(0));
    let count = calls.clone();
    let handler = async move || upstream(count.fetch_add(1, Ordering::Relaxed)).await;
    let upstream = serve(Router::new().route("/", get(handler))).await;
    (serve(app(upstream).unwrap()).await, calls)
}

async fn ask(uri: &Uri) -> (StatusCode, Bytes) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let response = client.get(uri.clone()).await.unwrap();
    let status = response.status();
    (
        status,
        response.into_body().collect().await.unwrap().to_bytes(),
    )
}

#[tokio::test]
async fn a_failure_is_retried() {
    let (uri, calls) = before(async |call| match call {
        0 => (StatusCode::SERVICE_UNAVAILABLE, "not now"),
        _ => (StatusCode::OK, "hello"),
    })
    .await;
    assert_eq!(ask(&uri).await, (StatusCode::OK, "hello".into()));
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_slow_answer_is_overtaken() {
    let (uri, calls) = before(async |call| {
        if call == 0 {
            std::future::pending::<()>().await;
        }
        (StatusCode::OK, "hello")
    })
    .await;
    assert_eq!(ask(&uri).await, (StatusCode::OK, "hello".into()));
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn ten_concurrent_requests_pass_and_most_of_the_next_ten_do_not() {
    let (uri, calls) = before(async |_| (StatusCode::OK, "hello")).await;
    for _ in 0..10 {
        assert_eq!(ask(&uri).await.0, StatusCode::OK);
    }
    let mut refused = 0;
    for _ in 0..10 {
        refused += u32::from(ask(&uri).await.0 == StatusCode::TOO_MANY_REQUESTS);
    }
    // Five tokens refill per second.
    assert!(refused >= 5, "{refused}");
    assert_eq!(calls.load(Ordering::Relaxed), 20 - refused);
}
