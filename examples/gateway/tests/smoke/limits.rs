//! Each client has its own rate limit.

use axum::http::{Request, StatusCode};

use crate::client::{get, header, send, text};
use crate::process::Gateway;

#[tokio::test]
async fn the_request_after_the_burst_is_429_and_has_a_retry_after() {
    let gateway = Gateway::start(&["--limit", "1", "--burst", "3", "--profile", "tail"]);
    let url = format!("http://{}/", gateway.addr);
    // On a slow machine one more token may refill.
    let rejected = async |key: Option<&str>| {
        for sent in 0..10 {
            let mut request = Request::get(&url);
            if let Some(key) = key {
                request = request.header("x-api-key", key);
            }
            let response = send(request, "").await;
            if response.status() != StatusCode::OK {
                assert!(sent >= 3, "only {sent} passed");
                return response;
            }
            let field = header(response.headers(), "ratelimit");
            assert!(field.starts_with("\"per-client\";r="), "{field}");
        }
        panic!("nothing was rejected");
    };

    let response = rejected(Some("a")).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let headers = response.headers();
    assert_eq!(header(headers, "retry-after"), "1");
    assert_eq!(header(headers, "ratelimit"), "\"per-client\";r=0;t=1");
    assert_eq!(
        header(headers, "ratelimit-policy"),
        "\"per-client\";q=3;w=3"
    );
    assert!(
        text(response)
            .await
            .contains(r#""violated-policies":["per-client"]"#)
    );

    // Another key has a separate bucket, and so does an address without a key.
    for other in [Some("b"), None] {
        assert_eq!(
            rejected(other).await.status(),
            StatusCode::TOO_MANY_REQUESTS
        );
    }
}

#[tokio::test]
async fn a_gateway_without_the_limit_forwards_more_than_the_burst() {
    for without in ["--bare", "--layers=retry,hedge"] {
        let options = [without, "--limit", "1", "--burst", "1", "--profile", "tail"];
        let gateway = Gateway::start(&options);
        for _ in 0..5 {
            let response = get(format!("http://{}/", gateway.addr)).await;
            assert_eq!(response.status(), StatusCode::OK);
            assert!(!response.headers().contains_key("ratelimit"));
        }
    }
}

#[tokio::test]
async fn a_gateway_with_only_the_limit_rejects_what_exceeds_the_burst() {
    let options = ["--layers=limit", "--limit=1", "--burst=1", "--profile=tail"];
    let gateway = Gateway::start(&options);
    let requests = (0..5).map(|_| get(format!("http://{}/", gateway.addr)));
    let responses = futures::future::join_all(requests).await;
    let statuses: Vec<_> = responses.iter().map(|response| response.status()).collect();
    assert!(statuses.contains(&StatusCode::OK), "{statuses:?}");
    assert!(
        statuses.contains(&StatusCode::TOO_MANY_REQUESTS),
        "{statuses:?}"
    );
}
