//! Rejections and rate-limit fields of HTTP responses.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header::RETRY_AFTER};
use tower::{Layer, ServiceBuilder, service_fn};
use tower_dist_ratelimit::{
    Policy, Quota, RateLimitLayer, Reason, ResponseHeaders, backend::Memory, key,
};

use crate::support::{Probe, field, from, get, send};

fn layer(fields: ResponseHeaders) -> RateLimitLayer {
    RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("per-client", Quota::per_minute(600).burst(3)).by(key::header("key")))
        .headers(fields)
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn responses_report_the_remaining_tokens() {
    let mut service = layer(ResponseHeaders::Always).layer(Probe::default());
    let response = send(&mut service, from("a")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(
        field(&response, "ratelimit-policy"),
        Some(r#""per-client";q=600;w=60"#)
    );
    assert_eq!(
        field(&response, "ratelimit"),
        Some(r#""per-client";r=2;t=1"#)
    );
    assert_eq!(field(&response, "retry-after"), None);
}

/// `q` and `w` of the policy, `r` of the first request, and the limit in `X-RateLimit-Limit`.
async fn shown(policy: Policy) -> (String, u64, u64) {
    let builder = RateLimitLayer::builder(Memory::default()).limit(policy);
    let mut service = builder
        .x_ratelimit()
        .build()
        .unwrap()
        .layer(Probe::default());
    let response = send(&mut service, get()).await;
    let state = field(&response, "ratelimit").unwrap();
    let remaining = state
        .split(";r=")
        .nth(1)
        .unwrap()
        .split(';')
        .next()
        .unwrap();
    let limit = field(&response, "x-ratelimit-limit").unwrap();
    let policy = field(&response, "ratelimit-policy").unwrap().to_owned();
    (policy, remaining.parse().unwrap(), limit.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_fields_report_the_usable_tokens_and_the_time_of_their_refill() {
    let policy = |quota| Policy::new("p", quota);
    let tenth = Quota::new(1, Duration::from_millis(100));
    for (policy, shown_as, remaining, limit) in [
        (
            policy(Quota::per_second(5).burst(10)),
            r#""p";q=10;w=2"#,
            9,
            10,
        ),
        (
            policy(Quota::per_second(5).burst(5)),
            r#""p";q=5;w=1"#,
            4,
            5,
        ),
        (
            policy(Quota::per_minute(60).burst(10)),
            r#""p";q=60;w=60"#,
            9,
            60,
        ),
        // Rounded up: a client that keeps to the field is never rejected.
        (
            policy(Quota::per_second(5).burst(7)),
            r#""p";q=7;w=2"#,
            6,
            7,
        ),
        (policy(tenth.burst(5)), r#""p";q=5"#, 4, 5),
        (policy(tenth.burst(20)), r#""p";q=20;w=2"#, 19, 20),
        (
            policy(Quota::per_second(1).burst(1 << 61)),
            r#""p";q=999999999999999;w=999999999999999"#,
            999_999_999_999_999,
            1 << 61,
        ),
        (
            policy(Quota::per_second(5)).leaky_queue(Duration::from_secs(2)),
            r#""p";q=11;w=3"#,
            10,
            11,
        ),
        (
            policy(Quota::per_minute(60)).fixed_window(),
            r#""p";q=60;w=60"#,
            59,
            60,
        ),
        // Dynamic quotas that differ from the policy's quota.
        (
            policy(Quota::per_second(1)).quota_by(|_| Some(Quota::per_second(5).burst(10))),
            r#""p";q=10;w=2"#,
            9,
            10,
        ),
    ] {
        assert_eq!(shown(policy).await, (shown_as.to_owned(), remaining, limit));
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_a_problem_document_with_all_the_fields() {
    let mut service = layer(ResponseHeaders::Always).layer(Probe::default());
    for _ in 0..3 {
        assert_eq!(send(&mut service, from("a")).await.status(), StatusCode::OK);
    }
    let response = send(&mut service, from("a")).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        field(&response, "content-type"),
        Some("application/problem+json")
    );
    assert_eq!(
        field(&response, "ratelimit-policy"),
        Some(r#""per-client";q=600;w=60"#)
    );
    assert_eq!(
        field(&response, "ratelimit"),
        Some(r#""per-client";r=0;t=1"#)
    );
    let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(
        body,
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Too Many Requests",
            "status": 429,
            "violated-policies": ["per-client"],
        })
    );
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_never_0() {
    // tower_governor sends 0 if the wait is below a second, so its clients retry immediately.
    let mut service = layer(ResponseHeaders::Never).layer(Probe::default());
    for _ in 0..3 {
        send(&mut service, from("a")).await;
    }
    tokio::time::advance(Duration::from_nanos(99_999_999)).await;
    let response = send(&mut service, from("a")).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&response, "retry-after"), Some("1"));
    tokio::time::advance(Duration::from_nanos(1)).await;
    assert_eq!(send(&mut service, from("a")).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn several_rejections_give_the_longest_wait_and_one_member_each() {
    let mut service = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("second", Quota::per_second(1)))
        .limit(Policy::new("hour", Quota::per_hour(60).burst(1)))
        .limit(Policy::new("roomy", Quota::per_second(9)))
        .build()
        .unwrap()
        .layer(Probe::default());
    send(&mut service, get()).await;
    let response = send(&mut service, get()).await;
    assert_eq!(field(&response, "retry-after"), Some("60"));
    assert_eq!(
        field(&response, "ratelimit"),
        Some(r#""second";r=0;t=1, "hour";r=0;t=60, "roomy";r=8;t=1"#)
    );
    assert_eq!(
        field(&response, "ratelimit-policy"),
        Some(r#""second";q=1;w=1, "hour";q=60;w=3600, "roomy";q=9;w=1"#)
    );
    let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(
        body["violated-policies"],
        serde_json::json!(["second", "hour"])
    );
}

/// A rejected client needs the time of its next success; other clients need the time of the full bucket.
#[tokio::test(start_paused = true)]
async fn the_fields_of_a_rejection_name_the_time_to_retry_and_other_fields_the_time_of_a_full_bucket()
 {
    let mut service = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("a", Quota::per_second(1).burst(9)).cost(3))
        .x_ratelimit()
        .build()
        .unwrap()
        .layer(Probe::default());
    for (state, remaining, reset) in [
        (r#""a";r=6;t=3"#, "6", "3"),
        (r#""a";r=3;t=6"#, "3", "6"),
        (r#""a";r=0;t=9"#, "0", "9"),
        (r#""a";r=0;t=3"#, "0", "3"),
    ] {
        let response = send(&mut service, get()).await;
        assert_eq!(field(&response, "ratelimit"), Some(state));
        assert_eq!(field(&response, "x-ratelimit-limit"), Some("9"));
        assert_eq!(field(&response, "x-ratelimit-remaining"), Some(remaining));
        assert_eq!(field(&response, "x-ratelimit-reset"), Some(reset));
    }
    let response = send(&mut service, get()).await;
    assert_eq!(field(&response, "retry-after"), Some("3"));
}

/// Rejections with the same numbers share a value.
#[tokio::test(start_paused = true)]
async fn consecutive_rejections_name_their_own_policy_and_wait() {
    let only = |name: &'static str| {
        Policy::new(name, Quota::per_minute(1)).only_if(move |head| head.headers()["key"] == name)
    };
    let mut service = RateLimitLayer::builder(Memory::default())
        .limit(only("a"))
        .limit(only("b"))
        .build()
        .unwrap()
        .layer(Probe::default());
    send(&mut service, from("a")).await;
    send(&mut service, from("b")).await;
    for (pause, key, state, wait) in [
        (0, "a", r#""a";r=0;t=60"#, "60"),
        (0, "a", r#""a";r=0;t=60"#, "60"),
        (0, "b", r#""b";r=0;t=60"#, "60"),
        (0, "a", r#""a";r=0;t=60"#, "60"),
        (1, "a", r#""a";r=0;t=59"#, "59"),
        (1, "b", r#""b";r=0;t=58"#, "58"),
    ] {
        tokio::time::advance(Duration::from_secs(pause)).await;
        let response = send(&mut service, from(key)).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(field(&response, "ratelimit"), Some(state));
        assert_eq!(field(&response, "retry-after"), Some(wait));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_can_never_pass_gets_no_retry_after() {
    let mut service = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("weighted", Quota::per_second(1).burst(5)).cost_fn(|_| 6))
        .build()
        .unwrap()
        .layer(Probe::default());
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&response, "retry-after"), None);
    assert_eq!(field(&response, "ratelimit"), Some(r#""weighted";r=5"#));
}

#[tokio::test(start_paused = true)]
async fn fields_of_inner_services_are_kept() {
    let inner = service_fn(async |_| {
        Ok::<_, std::convert::Infallible>(
            Response::builder()
                .header("ratelimit", r#""inner";r=1"#)
                .body(Bytes::new())
                .unwrap(),
        )
    });
    let mut service = ServiceBuilder::new()
        .layer(layer(ResponseHeaders::Always))
        .service(inner);
    let response = send(&mut service, from("a")).await;
    let all: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
    assert_eq!(all, [r#""inner";r=1"#, r#""per-client";r=2;t=1"#]);
}

#[tokio::test(start_paused = true)]
async fn fields_are_sent_as_configured() {
    // Half of 3 is 1.5. The fields appear at 2 remaining tokens, not at 3.
    for (fields, expected) in [
        (ResponseHeaders::Always, [true, true, true, true]),
        (ResponseHeaders::NearLimit(0.3), [false, true, true, true]),
        (ResponseHeaders::NearLimit(0.5), [true, true, true, true]),
        (ResponseHeaders::OnRejection, [false, false, false, true]),
        (ResponseHeaders::Never, [false, false, false, false]),
    ] {
        let mut service = layer(fields).layer(Probe::default());
        for (number, expected) in expected.into_iter().enumerate() {
            let response = send(&mut service, from("a")).await;
            let rejected = response.status() == StatusCode::TOO_MANY_REQUESTS;
            assert_eq!(
                field(&response, "ratelimit").is_some(),
                expected,
                "{fields:?} {number}"
            );
            assert_eq!(
                field(&response, "ratelimit-policy").is_some(),
                expected,
                "{fields:?} {number}"
            );
            assert_eq!(
                field(&response, "retry-after").is_some(),
                rejected,
                "{fields:?} {number}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_closure_builds_rejections_with_any_body() {
    let inner = service_fn(async |_| Ok::<_, std::convert::Infallible>(Response::new(7_u8)));
    let mut service = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("all", Quota::per_minute(1)))
        .rejection(|rejection| {
            assert_eq!(rejection.reason(), Reason::Quota);
            assert_eq!(rejection.retry_after(), Some(Duration::from_secs(60)));
            assert_eq!(rejection.violated().collect::<Vec<_>>(), ["all"]);
            let mut response = Response::new(9_u8);
            *response.status_mut() = StatusCode::IM_A_TEAPOT;
            response.headers_mut().insert(RETRY_AFTER, 5.into());
            response
        })
        .build()
        .unwrap()
        .layer(inner);
    assert_eq!(*send(&mut service, get()).await.body(), 7);
    let response = send(&mut service, get()).await;
    assert_eq!(
        (*response.body(), response.status()),
        (9, StatusCode::IM_A_TEAPOT)
    );
    assert_eq!(
        field(&response, "retry-after"),
        Some("5"),
        "its own Retry-After stays"
    );
    assert_eq!(field(&response, "ratelimit"), Some(r#""all";r=0;t=60"#));
}
