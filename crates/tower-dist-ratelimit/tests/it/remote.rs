//! A backend that answers slowly, too late, or never.

use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use tower::Layer;
use tower_dist_ratelimit::{
    BuildError, Decision, FailureMode, Limiter, Policy, RateLimitLayer,
    backend::{Answer, Backend, BackendError, BoxFuture, Charge, PolicyId},
};

use crate::support::{Broken, Probe, Remote, field, get, send, slow};

fn layer(backend: impl Backend, on_error: FailureMode) -> RateLimitLayer {
    RateLimitLayer::builder(backend)
        .limit(Policy::new("all", slow(1)))
        .failure_mode(on_error)
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_decides_like_an_early_one() {
    let mut service =
        layer(Remote::after(Duration::from_millis(3)), FailureMode::Closed).layer(Probe::default());
    let started = Instant::now();
    let response = send(&mut service, get()).await;
    assert_eq!(started.elapsed(), Duration::from_millis(3));
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(field(&response, "ratelimit"), Some(r#""all";r=0;t=1"#));
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&response, "retry-after"), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_for_a_late_backend() {
    for (action, status, calls) in [
        (FailureMode::Closed, StatusCode::SERVICE_UNAVAILABLE, 0),
        (FailureMode::Open, StatusCode::OK, 1),
    ] {
        let probe = Probe::default();
        let mut service = layer(Remote::after(Duration::from_secs(9)), action).layer(probe.twin());
        let started = Instant::now();
        let response = send(&mut service, get()).await;
        assert_eq!(started.elapsed(), Duration::from_millis(50));
        assert_eq!((response.status(), probe.calls()), (status, calls));
        assert_eq!(field(&response, "ratelimit"), None, "nothing was decided");
    }
}

#[tokio::test(start_paused = true)]
async fn the_timeout_can_be_set() {
    let mut service = RateLimitLayer::builder(Remote::after(Duration::from_secs(9)))
        .limit(Policy::new("all", slow(1)))
        .backend_timeout(Duration::from_millis(7))
        .build()
        .unwrap()
        .layer(Probe::default());
    let started = Instant::now();
    send(&mut service, get()).await;
    assert_eq!(started.elapsed(), Duration::from_millis(7));
}

#[tokio::test(start_paused = true)]
async fn a_failing_backend_can_reject_requests_with_a_503() {
    let mut service = layer(Broken, FailureMode::Closed).layer(Probe::default());
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(field(&response, "retry-after"), None);
    assert_eq!(
        &response.body()[..],
        br#"{"type":"about:blank","title":"Service Unavailable","status":503}"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_failing_backend_can_be_ignored() {
    let probe = Probe::default();
    let mut service = layer(Broken, FailureMode::Open).layer(probe.twin());
    for _ in 0..3 {
        assert_eq!(send(&mut service, get()).await.status(), StatusCode::OK);
    }
    assert_eq!((probe.calls(), probe.clones()), (3, 0), "called in place");
}

/// A backend that answers later, and yet claims to be local.
struct Mistaken(Remote);

impl Backend for Mistaken {
    fn is_remote(&self) -> bool {
        false
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.0.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        self.0.acquire(charges, out)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        self.0.settle(charges, delta)
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        self.0.reset(policy, key)
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_answers_later_but_claims_to_be_local_fails_with_that_reason() {
    let backend = Mistaken(Remote::after(Duration::from_millis(3)));
    let limiter = Limiter::builder(backend, Policy::new("all", slow(1)));
    let limiter = limiter.failure_mode(FailureMode::Closed).build().unwrap();
    let error = limiter.check("k").await.unwrap_err();
    let says =
        "the rate limit's backend did not decide: the backend is not remote, but answers later";
    assert_eq!(error.to_string(), says);
}
