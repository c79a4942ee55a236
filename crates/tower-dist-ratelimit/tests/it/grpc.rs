//! Rejections as gRPC statuses.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use http::{Response, StatusCode};
use tower::{Layer, ServiceBuilder};
use tower_dist_ratelimit::{
    FailureMode, MissingKey, Policy, Quota, RateLimitLayer, backend::Memory, key,
};

use crate::support::{Broken, Probe, field, from, get, send, slow};

fn rejected<B>(response: &Response<B>, status: &str, message: &str) {
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(field(response, "content-type"), Some("application/grpc"));
    assert_eq!(field(response, "grpc-status"), Some(status));
    assert_eq!(field(response, "grpc-message"), Some(message));
    assert_eq!(field(response, "retry-after"), None);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_a_trailers_only_status_with_the_wait_and_the_policy() {
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new(
            "calls",
            Quota::new(1, std::time::Duration::from_millis(2500)),
        ))
        .grpc()
        .build()
        .unwrap();
    let mut service = layer.layer(Probe::default());
    assert_eq!(field(&send(&mut service, get()).await, "grpc-status"), None);
    let response = send(&mut service, get()).await;
    rejected(&response, "8", "rate limit exceeded");
    assert!(response.body().is_empty());
    assert_eq!(field(&response, "grpc-retry-pushback-ms"), Some("2500"));
    assert_eq!(field(&response, "ratelimit"), Some(r#""calls";r=0;t=3"#));

    let details = field(&response, "grpc-status-details-bin").unwrap();
    let details = STANDARD_NO_PAD.decode(details).unwrap();
    let retry_info = b"\x0a\x28type.googleapis.com/google.rpc.RetryInfo\
        \x12\x0a\x0a\x08\x08\x02\x10\x80\xca\xb5\xee\x01";
    let quota_failure = b"\x0a\x2btype.googleapis.com/google.rpc.QuotaFailure\
        \x12\x09\x0a\x07\x0a\x05calls";
    let mut status = b"\x08\x08\x12\x13rate limit exceeded".to_vec();
    for detail in [&retry_info[..], quota_failure] {
        status.extend([0x1a, u8::try_from(detail.len()).unwrap()]);
        status.extend(detail);
    }
    assert_eq!(details, status);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_can_never_pass_is_not_retryable() {
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("all", slow(1)).cost_fn(|_| 2))
        .grpc()
        .build()
        .unwrap();
    let response = send(&mut layer.layer(Probe::default()), get()).await;
    rejected(&response, "8", "rate limit exceeded");
    assert_eq!(field(&response, "grpc-retry-pushback-ms"), Some("-1"));
}

#[tokio::test(start_paused = true)]
async fn a_failing_backend_is_unavailable_and_a_missing_key_invalid() {
    let keyed = Policy::new("each", slow(1)).by(key::header("key"));
    let layer = RateLimitLayer::builder(Broken)
        .limit(keyed.missing_key(MissingKey::Reject))
        .failure_mode(FailureMode::Closed)
        .grpc()
        .build()
        .unwrap();
    let mut service = ServiceBuilder::new().layer(layer).service(Probe::default());
    let response = send(&mut service, from("a")).await;
    rejected(&response, "14", "rate limit unavailable");
    assert_eq!(field(&response, "grpc-retry-pushback-ms"), None);
    let response = send(&mut service, get()).await;
    rejected(&response, "3", "rate-limit key missing");
}
