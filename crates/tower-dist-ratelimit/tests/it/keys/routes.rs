//! Limits for all requests, and limits for some.

use tower_dist_ratelimit::Quota;

use super::*;

fn to(path: &str) -> Request<()> {
    Request::builder().uri(path).body(()).unwrap()
}

fn login(limit: u64) -> Policy {
    Policy::new("login", slow(limit)).only_if(|head| head.uri().path() == "/login")
}

#[tokio::test(start_paused = true)]
async fn a_policy_for_some_requests_is_decided_together_with_the_others() {
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("all", slow(5)))
        .limit(login(1));
    let mut service = layer.build().unwrap().layer(Probe::default());
    assert_eq!(send(&mut service, to("/login")).await.status(), OK);
    for _ in 0..10 {
        let response = send(&mut service, to("/login")).await;
        assert_eq!(response.status(), REFUSED);
        let state = field(&response, "ratelimit").unwrap();
        assert!(state.starts_with(r#""all";r=4;"#), "{state}");
    }
    for _ in 0..4 {
        assert_eq!(send(&mut service, to("/")).await.status(), OK);
    }
    assert_eq!(send(&mut service, to("/")).await.status(), REFUSED);
}

#[tokio::test(start_paused = true)]
async fn an_outer_layer_charges_requests_that_an_inner_layer_rejects() {
    let layer = |policy| {
        let builder = RateLimitLayer::builder(Memory::default()).limit(policy);
        builder.build().unwrap()
    };
    let inner = layer(login(1)).layer(Probe::default());
    let mut service = layer(Policy::new("all", slow(5))).layer(inner);
    for status in [OK, REFUSED, REFUSED, REFUSED, REFUSED] {
        assert_eq!(send(&mut service, to("/login")).await.status(), status);
    }
    assert_eq!(send(&mut service, to("/")).await.status(), REFUSED);
}

#[tokio::test(start_paused = true)]
async fn the_fields_name_the_policies_that_apply() {
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("all", Quota::per_minute(5)))
        .limit(login(1));
    let mut service = layer.build().unwrap().layer(Probe::default());
    let response = send(&mut service, to("/")).await;
    assert_eq!(
        field(&response, "ratelimit-policy"),
        Some(r#""all";q=5;w=60"#)
    );
    let response = send(&mut service, to("/login")).await;
    let policies = field(&response, "ratelimit-policy").unwrap();
    assert!(policies.contains(r#""login""#), "{policies}");

    let layer = RateLimitLayer::builder(Memory::default()).limit(login(1));
    let mut service = layer.build().unwrap().layer(Probe::default());
    for _ in 0..3 {
        let response = send(&mut service, to("/")).await;
        assert_eq!(response.status(), OK);
        assert_eq!(field(&response, "ratelimit-policy"), None);
    }
}

#[test]
fn a_limit_without_http_takes_no_policy_for_some_requests() {
    let error = tower_dist_ratelimit::Limiter::new(Memory::default(), login(1)).unwrap_err();
    assert_eq!(error.field(), "only_if");
}
