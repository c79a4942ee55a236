//! Tests that wait for minutes in microseconds.
//!
//! The layers use tokio's clock. `#[tokio::test(start_paused = true)]` stops it, and tokio moves it to the next timer
//! as soon as every task waits. [`Backoff::seed`] makes the jitter repeatable. The feature `test-util` of tokio is
//! necessary in `dev-dependencies`.
//!
//! Real sockets do not wait for a paused clock: put `tower::service_fn` in place of the client or the server.

use std::time::Duration;

use tower_jitter_retry::{Backoff, BuildError, Http, RetryLayer};

/// Up to four attempts, with at most 1, 2 and 4 seconds between them.
pub fn layer() -> Result<RetryLayer<Http>, BuildError> {
    RetryLayer::builder()
        .http()
        .max_attempts(4)
        .backoff(Backoff::exponential(
            Duration::from_secs(1),
            Duration::from_secs(30),
        ))
        .build()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::{Request, Response, StatusCode};
    use http_body_util::Full;
    use tokio::time::{Instant, advance};
    use tower::{Layer, Service, ServiceExt, service_fn};
    use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};

    use super::*;

    type Body = Full<Bytes>;

    #[tokio::test(start_paused = true)]
    async fn the_delays_add_up_to_at_most_seven_seconds() {
        let broken = service_fn(async |_: Request<Body>| {
            let mut response = Response::new(Body::default());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            Ok::<_, Infallible>(response)
        });
        let mut client = layer().unwrap().layer(broken);
        let start = Instant::now();
        let response = client
            .ready()
            .await
            .unwrap()
            .call(Request::new(Body::default()))
            .await;
        assert_eq!(response.unwrap().status(), 500);
        assert!(start.elapsed() > Duration::ZERO);
        // tokio rounds each of the three timers up to a millisecond.
        assert!(start.elapsed() <= Duration::from_millis(7_003));
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_allows_the_next_request_exactly_after_its_retry_after() {
        let limiter =
            Limiter::new(Memory::default(), Policy::new("hourly", Quota::per_hour(1))).unwrap();
        assert!(limiter.check("ada").await.unwrap().allowed);
        let rejected = limiter.check("ada").await.unwrap();
        assert_eq!(rejected.retry_after, Some(Duration::from_hours(1)));

        advance(Duration::from_hours(1) - Duration::from_nanos(1)).await;
        assert!(!limiter.check("ada").await.unwrap().allowed);
        advance(Duration::from_nanos(1)).await;
        assert!(limiter.check("ada").await.unwrap().allowed);
    }
}
