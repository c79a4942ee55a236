//! Policies that are cloned, hidden and named, and keys of many types.

use std::{collections::HashSet, net::IpAddr};

use http::StatusCode;
use tower::Layer;
use tower_dist_ratelimit::{
    Limiter, Policy, Quota, RateLimitLayer, RequestPolicy, ResponseHeaders, Source,
    backend::Memory,
    key::{self, IntoKey, KeyExtractor, KeySink, RequestParts},
};

use crate::support::{Probe, from, get, send};

fn bytes(key: impl IntoKey) -> Vec<u8> {
    let mut sink = KeySink::new();
    assert!(key.write(&mut sink).is_some());
    sink.bytes().to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_cloned_policy_has_the_key_the_cost_and_the_condition_of_the_first() {
    let policy = Policy::new("p", Quota::per_minute(4))
        .by(key::header("x-client"))
        .cost_fn(|_| 2)
        .only_if(|head| head.method() == "GET");
    for policy in [policy.clone(), policy] {
        let layer = RateLimitLayer::builder(Memory::default()).limit(policy);
        let mut service = layer.build().unwrap().layer(Probe::default());
        for status in [200, 200, 429] {
            let response = send(&mut service, from("a")).await;
            assert_eq!(response.status().as_u16(), status);
        }
    }
    let jobs = Policy::new("jobs", Quota::per_minute(1)).by_request(|job: &u64| *job);
    let _: [RequestPolicy<u64>; 2] = [jobs.clone(), jobs];
}

#[test]
fn every_algorithm_has_a_name_of_its_own() {
    let policy = || Policy::new("p", Quota::per_minute(10));
    let second = std::time::Duration::from_secs(1);
    for (policy, name) in [
        (policy(), "token bucket"),
        (policy().leaky_bucket(), "leaky bucket"),
        (policy().leaky_queue(second), "leaky queue of 1s"),
        (policy().fixed_window(), "fixed window"),
        (policy().fixed_window_staggered(), "staggered fixed window"),
        (
            policy().fixed_window_from_first_request(),
            "fixed window from first request",
        ),
        (policy().sliding_window(), "sliding window"),
        (
            policy().sliding_window_buckets(4),
            "sliding window of 4 buckets",
        ),
        (
            policy().sliding_window_strict(4),
            "strict sliding window of 4 buckets",
        ),
        (policy().sliding_window_log(), "sliding window log"),
    ] {
        assert_eq!(policy.algorithm().to_string(), name);
    }
}

#[test]
fn integers_of_all_widths_are_keys_and_different_numbers_are_different_keys() {
    assert_eq!(bytes(7_u8), bytes(7_u64));
    assert_eq!(bytes(7_i32), bytes(7_usize));
    let signed: HashSet<_> = [i64::MIN, -256, -1, 0, 1, 256, i64::MAX].map(bytes).into();
    assert_eq!(signed.len(), 7);
    let wide = [0, 1, u128::from(u64::MAX), 1 << 64, u128::MAX];
    let wide: HashSet<_> = wide.map(bytes).into();
    assert_eq!(wide.len(), 5);
}

#[test]
fn three_and_four_parts_are_one_key_that_no_other_split_equals() {
    assert_ne!(bytes(("a", "b", "c")), bytes(("a", "bc", "")));
    assert_ne!(bytes(("a", "b", "c")), bytes((("a", "b"), "d")));
    assert_ne!(bytes(("a", 1, "c", 2_u8)), bytes(("a", 2, "c", 1_u8)));
    let address: IpAddr = "192.0.2.7".parse().unwrap();
    assert_eq!(bytes((address, 1, "x")), bytes((address, 1_u64, "x")));
    let mut sink = KeySink::new();
    assert_eq!(("a", None::<u64>, "c").write(&mut sink), None);
}

#[test]
fn an_extractor_of_three_parts_can_be_tested_without_a_layer() {
    let by = (
        key::method(),
        key::header("x-client"),
        key::header("x-tenant"),
    );
    let key = |client: &'static str| {
        let request = http::Request::builder()
            .header("x-client", client)
            .header("x-tenant", "t")
            .body(())
            .unwrap();
        let mut sink = KeySink::default();
        by.extract(RequestParts::new(&request), &mut sink)?;
        Some(sink.bytes().to_vec())
    };
    assert_eq!(key("a"), key("a"));
    assert_ne!(key("a"), key("b"));
    let mut sink = KeySink::new();
    assert_eq!(by.extract(RequestParts::new(&get()), &mut sink), None);
}

#[tokio::test(start_paused = true)]
async fn a_hidden_policy_decides_but_no_response_names_it() {
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("secret", Quota::per_minute(2)).hidden())
        .limit(Policy::new("shown", Quota::per_minute(9)))
        .headers(ResponseHeaders::Always)
        .x_ratelimit()
        .build()
        .unwrap();
    let mut service = layer.layer(Probe::default());
    for left in [8, 7] {
        let response = send(&mut service, get()).await;
        assert_eq!(response.status(), StatusCode::OK);
        let fields = response.headers();
        assert_eq!(fields["ratelimit-policy"], r#""shown";q=9;w=60"#);
        assert!(
            fields["ratelimit"]
                .to_str()
                .unwrap()
                .starts_with(&format!(r#""shown";r={left}"#))
        );
        assert_eq!(fields["x-ratelimit-remaining"], left.to_string());
    }
    let rejected = send(&mut service, get()).await;
    assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(rejected.headers()["retry-after"], "30");
    let said = format!("{:?} {:?}", rejected.headers(), rejected.body());
    assert!(!said.contains("secret"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_limiter_of_several_policies_charges_all_or_none() {
    let limiter = Limiter::builder(Memory::default(), Policy::new("few", Quota::per_minute(2)))
        .limit(Policy::new("many", Quota::per_hour(5)).cost(2))
        .build()
        .unwrap();
    assert_eq!(limiter.check("a").await.unwrap().remaining, 1);
    let second = limiter.check("a").await.unwrap();
    assert_eq!((second.allowed, second.remaining), (true, 0));
    // The wait for a token per hour is longer than the wait for a token per minute.
    let rejected = limiter.check("a").await.unwrap();
    assert_eq!((rejected.allowed, rejected.limit), (false, 5));
    assert_eq!(limiter.check("b").await.unwrap().remaining, 1);
    limiter.refund("a", 2).await.unwrap();
    let again = limiter.check("a").await.unwrap();
    assert_eq!((again.allowed, again.source), (true, Source::Backend));
    limiter.reset("a").await.unwrap();
    let fresh = limiter.peek("a").await.unwrap();
    assert_eq!((fresh.limit, fresh.remaining), (2, 2));
    let names = format!("{limiter:?}");
    assert!(names.contains("few") && names.contains("many"), "{names}");
}
