//! A retry budget for each host.
//!
//! With one budget for all hosts, a host that is down spends the retries of the others. `budget_by` keeps one budget
//! for each key.

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tower::ServiceBuilder;
use tower_jitter_retry::{Budget, Budgets, BuildError, Http, Retry, RetryLayer};

/// hyper-util's client with retries.
pub type HttpClient = Retry<Client<HttpConnector, Empty<Bytes>>, Http>;

/// A client that sends each host at most 5 retries, plus one for every five successful calls.
pub fn client() -> Result<HttpClient, BuildError> {
    let budgets = Budgets::new(Budget::ratio(0.2).initial(5));
    let retry = RetryLayer::builder()
        .http()
        .budget_by(budgets, |request| request.authority())
        .build()?;
    Ok(ServiceBuilder::new()
        .layer(retry)
        .service(Client::builder(TokioExecutor::new()).build_http()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use axum::Router;
    use http::{Request, StatusCode};
    use tower::ServiceExt;

    use super::*;
    use crate::testing::serve;

    #[tokio::test]
    async fn a_host_that_is_down_spends_only_its_own_budget() {
        let attempts = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&attempts);
        let down = Router::new().fallback(async move || {
            count.fetch_add(1, Relaxed);
            StatusCode::SERVICE_UNAVAILABLE
        });
        let (flaky_calls, down) = (Arc::new(AtomicUsize::new(0)), serve(down).await);
        let flaky = Router::new().fallback(async move || match flaky_calls.fetch_add(1, Relaxed) {
            0 => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::OK,
        });
        let (client, flaky) = (client().unwrap(), serve(flaky).await);
        let get = async |url: &str| {
            let request = Request::get(url).body(Empty::new()).unwrap();
            client.clone().oneshot(request).await.unwrap().status()
        };

        for _ in 0..10 {
            assert_eq!(get(&down).await, 503);
        }
        // Ten first attempts, and five retries from the initial tokens.
        assert_eq!(attempts.load(Relaxed), 15);
        assert_eq!(get(&flaky).await, 200);
    }
}
