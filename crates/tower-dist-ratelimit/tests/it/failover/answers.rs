//! Responses and events while the backend fails.

use http::StatusCode;
use tokio::time::advance;
use tower::Layer;
use tower_dist_ratelimit::{FailureMode, Policy, Quota, RateLimitLayer};

use super::{break_down, ms, plenty, service};
use crate::support::{Mood, Probe, Scripted, field, from, get, send};

#[tokio::test(start_paused = true)]
async fn an_exhausted_share_is_a_503_with_the_reason_and_retry_after() {
    let on_error = FailureMode::Local { instances: 2 };
    let (_, mut service) = service(Mood::Failing, Quota::per_second(1).burst(2), on_error);
    let response = send(&mut service, from("a")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(field(&response, "ratelimit"), Some(r#""each";r=0;t=1"#));
    let response = send(&mut service, from("a")).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(field(&response, "retry-after"), Some("1"));
    assert_eq!(field(&response, "ratelimit"), Some(r#""each";r=0;t=1"#));
    assert_eq!(
        field(&response, "content-type"),
        Some("application/problem+json")
    );
    assert_eq!(
        std::str::from_utf8(response.body()).unwrap(),
        concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","#,
            r#""title":"Service Unavailable","status":503,"violated-policies":["each"]}"#
        )
    );
    advance(ms(999)).await;
    assert_eq!(send(&mut service, from("a")).await.status(), 503);
    advance(ms(1)).await;
    assert_eq!(send(&mut service, from("a")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_closed_failure_mode_sends_the_time_of_the_next_probe_once_known() {
    let (store, mut service) = service(Mood::Failing, plenty(), FailureMode::Closed);
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(field(&response, "retry-after"), None);
    break_down(&store, &mut service).await;
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(field(&response, "retry-after"), Some("1"));
    assert_eq!(field(&response, "ratelimit"), None, "no count is known");
    assert_eq!(
        &response.body()[..],
        br#"{"type":"about:blank","title":"Service Unavailable","status":503}"#
    );
}

#[tokio::test(start_paused = true)]
async fn an_open_failure_mode_sends_no_rate_limit_fields() {
    let (_, mut service) = service(Mood::Failing, plenty(), FailureMode::Open);
    for _ in 0..9 {
        let response = send(&mut service, get()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(field(&response, "ratelimit"), None);
        assert_eq!(field(&response, "ratelimit-policy"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn in_grpc_both_rejections_are_unavailable_with_a_pushback() {
    for (on_error, message, least, most) in [
        (FailureMode::Closed, "rate limit unavailable", 50, 100),
        (
            FailureMode::Local { instances: 2 },
            "temporarily reduced rate limit exceeded",
            1_000,
            1_000,
        ),
    ] {
        let policy = Policy::new("calls", Quota::per_second(1));
        let layer = RateLimitLayer::builder(Scripted::new(Mood::Failing)).limit(policy);
        let layer = layer.failure_mode(on_error).grpc().build().unwrap();
        let mut service = layer.layer(Probe::default());
        // Half of one token per second is rounded up to one.
        for _ in 0..5 {
            send(&mut service, get()).await;
        }
        let response = send(&mut service, get()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(field(&response, "grpc-status"), Some("14"));
        assert_eq!(field(&response, "grpc-message"), Some(message));
        assert!(field(&response, "grpc-status-details-bin").is_some());
        let pushback = field(&response, "grpc-retry-pushback-ms").unwrap();
        let pushback: u32 = pushback.parse().unwrap();
        assert!((least..=most).contains(&pushback), "{pushback}");
    }
}
