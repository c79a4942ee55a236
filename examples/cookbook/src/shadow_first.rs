//! New layers in production: shadow first, then on.
//!
//! In shadow mode a layer decides and counts, and changes no request. Compare its counts with your expectation, then
//! switch it on. The retry and the hedge layer switch without a restart; the rate limit is built again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tower_dist_ratelimit::{
    self as ratelimit, Event, Observer, Policy, Quota, RateLimitLayer, backend::Memory, key,
};
use tower_hedge_latency::{self as hedge, HedgeLayer};
use tower_jitter_retry::{self as retry, Http, Mode, RetryLayer};

/// A retry layer that counts the calls that it would retry. `layer.handle().set_mode(Mode::On)` switches it on.
pub fn shadow_retry() -> Result<RetryLayer<Http>, retry::BuildError> {
    RetryLayer::builder().http().mode(Mode::Shadow).build()
}

/// A hedge layer that counts the hedges it would send. It learns its trigger at the same time.
pub fn shadow_hedge() -> Result<HedgeLayer<Http>, hedge::BuildError> {
    HedgeLayer::builder().http().mode(Mode::Shadow).build()
}

/// Counts the requests that a rate limit in shadow mode would have rejected.
#[derive(Debug, Default)]
pub struct WouldReject(AtomicU64);

impl WouldReject {
    /// The number of requests so far.
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Observer for WouldReject {
    fn on_event(&self, _name: &Arc<str>, event: Event<'_>) {
        if let Event::Shadowed(_) = event {
            self.0.fetch_add(1, Relaxed);
        }
    }
}

/// A rate limit. In [`Mode::Shadow`] it rejects no request.
pub fn limit(
    mode: Mode,
    would_reject: &Arc<WouldReject>,
) -> Result<RateLimitLayer, ratelimit::BuildError> {
    let builder = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("client", Quota::per_minute(60)).by(key::header("x-api-key")))
        .observer(Arc::clone(would_reject));
    match mode {
        Mode::Shadow => builder.shadow().build(),
        _ => builder.build(),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use bytes::Bytes;
    use http::{Request, Response, StatusCode};
    use http_body_util::Full;
    use tokio::time::sleep;
    use tower::{Layer, ServiceExt, service_fn};

    use super::*;

    type Body = Full<Bytes>;

    #[tokio::test(start_paused = true)]
    async fn a_shadow_counts_the_retries_that_the_layer_would_send_until_it_is_switched_on() {
        let attempts = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&attempts);
        let failing = service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Relaxed);
            let mut response = Response::new(Body::default());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            async { Ok::<_, Infallible>(response) }
        });
        let layer = shadow_retry().unwrap();
        let client = layer.layer(failing);
        client
            .clone()
            .oneshot(Request::new(Body::default()))
            .await
            .unwrap();
        assert_eq!(attempts.load(Relaxed), 1);
        assert_eq!(
            layer.handle().counts().stopped(retry::StopReason::Shadow),
            1
        );

        layer.handle().set_mode(Mode::On);
        client.oneshot(Request::new(Body::default())).await.unwrap();
        assert_eq!(attempts.load(Relaxed), 1 + 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shadow_counts_the_hedges_that_the_layer_would_send_until_it_is_switched_on() {
        let attempts = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&attempts);
        // Every hundredth request is slow.
        let service = service_fn(move |_: Request<Body>| {
            let number = count.fetch_add(1, Relaxed);
            async move {
                let slow = number % 100 == 99;
                sleep(Duration::from_millis(if slow { 500 } else { 10 })).await;
                Ok::<_, Infallible>(Response::new(Body::default()))
            }
        });
        let layer = shadow_hedge().unwrap();
        let client = layer.layer(service);
        let send = async || {
            let request = Request::new(Body::default());
            client.clone().oneshot(request).await.unwrap();
        };
        for _ in 0..1000 {
            send().await;
        }
        let counts = layer.handle().counts();
        assert!(counts.shadowed > 0 && counts.hedges == 0, "{counts:?}");
        assert_eq!(attempts.load(Relaxed), 1000);

        layer.handle().set_mode(Mode::On);
        for _ in 0..1000 {
            send().await;
        }
        let hedges = layer.handle().counts().hedges;
        assert!(hedges > 0);
        assert_eq!(attempts.load(Relaxed), 2000 + hedges);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_in_shadow_mode_allows_every_request_and_counts_rejections() {
        let would_reject = Arc::new(WouldReject::default());
        let hello = service_fn(async |_: Request<Body>| {
            Ok::<_, Infallible>(Response::new(Body::default()))
        });
        for (mode, allowed) in [(Mode::Shadow, 100), (Mode::On, 60)] {
            let service = limit(mode, &would_reject).unwrap().layer(hello);
            let mut successes = 0;
            for _ in 0..100 {
                let request = Request::builder()
                    .header("x-api-key", "ada")
                    .body(Body::default())
                    .unwrap();
                let response = service.clone().oneshot(request).await.unwrap();
                successes += usize::from(response.status().is_success());
            }
            assert_eq!(successes, allowed, "{mode:?}");
            // The enforced limit reports other events.
            assert_eq!(would_reject.count(), 40, "{mode:?}");
        }
    }
}
