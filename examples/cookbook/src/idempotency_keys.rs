//! A POST that is safe to retry.
//!
//! By default, the layer does not retry a POST that the server may have processed. An `Idempotency-Key` changes that:
//! the server recognises the second attempt and returns the result of the first one. The layer sends the same key with
//! every attempt of a call.

use http::HeaderValue;
use tower::{BoxError, Service, ServiceBuilder};
use tower_jitter_retry::{BuildError, RetryLayer};

/// A client for a server that honours `Idempotency-Key`. The key must be unique for each call: use a random UUID.
///
/// A caller that sets the header keeps its own key.
pub fn client(
    unique: impl Fn() -> String + Send + Sync + 'static,
) -> Result<
    impl Service<reqwest::Request, Response = reqwest::Response, Error = BoxError> + Clone,
    BuildError,
> {
    let key = move || HeaderValue::try_from(format!("\"{}\"", unique())).expect("a UUID is ASCII");
    let retry = RetryLayer::builder()
        .http()
        .generate_idempotency_key(key)
        .build()?;
    Ok(ServiceBuilder::new()
        .layer(retry)
        .map_err(BoxError::from)
        .service(reqwest::Client::new()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::{Arc, Mutex};

    use axum::{Router, http::HeaderMap, routing::post};
    use tower::ServiceExt;

    use super::*;
    use crate::testing::serve;

    /// The idempotency keys of the payments that the server made.
    type Payments = Arc<Mutex<HashSet<String>>>;

    /// Pays once for each key. The response of the first attempt is lost: the server closes the connection.
    async fn bank(payments: &Payments) -> String {
        let (payments, attempts) = (Arc::clone(payments), AtomicUsize::new(0));
        let attempts = Arc::new(attempts);
        let pay = async move |headers: HeaderMap| {
            let key = headers["idempotency-key"].to_str().unwrap().to_owned();
            payments.lock().unwrap().insert(key);
            if attempts.fetch_add(1, Relaxed) == 0 {
                panic!("the connection breaks before the response");
            }
            "paid"
        };
        serve(Router::new().route("/pay", post(pay))).await
    }

    #[tokio::test]
    async fn a_payment_whose_response_is_lost_is_made_once() {
        let payments = Payments::default();
        let url = bank(&payments).await + "/pay";
        let calls = AtomicUsize::new(1);
        let unique = move || format!("call {}", calls.fetch_add(1, Relaxed));
        let client = client(unique).unwrap();
        let request = reqwest::Client::new()
            .post(url)
            .body("10 EUR")
            .build()
            .unwrap();
        let response = client.oneshot(request).await.unwrap();
        assert_eq!(response.text().await.unwrap(), "paid");
        // Both attempts had the same key.
        let made: Vec<String> = payments.lock().unwrap().iter().cloned().collect();
        assert_eq!(made, ["\"call 1\""]);
    }
}
