//! An invalid configuration fails to build, and the error names the necessary change.

mod stores;

use std::time::Duration;

use tower_dist_ratelimit::{
    BuildError, CallLimitLayer, Decision, FailureMode, Limiter, MissingKey, Policy, Quota,
    RateLimitLayer, ResponseHeaders, TrustedProxies,
    backend::{Answer, Backend, BackendError, BoxFuture, Charge, Memory, PolicyId},
    key::{self, KeyExtractor},
};

use crate::support::{Broken, Mood, Scripted};

fn built(policy: Policy) -> Result<RateLimitLayer, BuildError> {
    RateLimitLayer::builder(Memory::default())
        .limit(policy)
        .build()
}

#[track_caller]
fn rejects<T: std::fmt::Debug>(
    result: Result<T, BuildError>,
    policy: Option<&str>,
    field: &str,
    value: &str,
    bound: &str,
) {
    let error = result.unwrap_err();
    assert_eq!(
        (error.policy(), error.field(), error.value(), error.bound()),
        (policy, field, value, bound)
    );
}

#[test]
fn quotas_that_cannot_be_kept_are_rejected() {
    let named = |quota| built(Policy::new("p", quota));
    let max = u64::MAX.to_string();
    rejects(
        named(Quota::per_second(0)),
        Some("p"),
        "limit",
        "0",
        "at least 1",
    );
    rejects(
        named(Quota::per_second(1).burst(0)),
        Some("p"),
        "burst",
        "0",
        "at least 1",
    );
    rejects(
        named(Quota::new(1, Duration::ZERO)),
        Some("p"),
        "window",
        "0ns",
        "at least 1ns",
    );
    rejects(
        named(Quota::per_second(u64::MAX)),
        Some("p"),
        "limit",
        &max,
        "at most 2922710230 in a window of 1s",
    );
    rejects(
        named(Quota::per_second(1).burst(u64::MAX)),
        Some("p"),
        "burst",
        &max,
        "at most 2305843009213693952",
    );
    let error = named(Quota::new(1, Duration::MAX)).unwrap_err();
    assert_eq!(
        (error.field(), error.bound()),
        ("window", "at most 100 years")
    );
}

#[test]
fn zero_and_excessive_costs_are_rejected() {
    let costing = |cost| built(Policy::new("p", Quota::per_second(5)).cost(cost));
    rejects(costing(0), Some("p"), "cost", "0", "at least 1");
    rejects(costing(6), Some("p"), "cost", "6", "at most the burst, 5");
    assert!(costing(5).is_ok());
}

#[test]
fn names_are_unique_and_valid_in_a_field() {
    let named = |name: &str| built(Policy::new(name, Quota::per_second(5)));
    let bound = "1 to 64 printable ASCII characters";
    rejects(named(""), Some(""), "name", r#""""#, bound);
    rejects(named("grün"), Some("grün"), "name", r#""grün""#, bound);
    rejects(
        named("a\r\nset-cookie: b"),
        Some("a\r\nset-cookie: b"),
        "name",
        r#""a\r\nset-cookie: b""#,
        bound,
    );
    assert!(named(&"n".repeat(65)).is_err());
    assert!(named(&"n".repeat(64)).is_ok());
    assert!(named(r#"with "quotes" and \"#).is_ok());
    let twice = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("same", Quota::per_second(5)))
        .limit(Policy::new("same", Quota::per_second(6)))
        .build();
    rejects(
        twice,
        Some("same"),
        "name",
        r#""same""#,
        "another for each policy",
    );
}

#[test]
fn settings_out_of_range_are_rejected() {
    let builder =
        || RateLimitLayer::builder(Memory::default()).limit(Policy::new("p", Quota::per_second(1)));
    let share = "above 0 and at most 1";
    rejects(
        builder().headers(ResponseHeaders::NearLimit(0.0)).build(),
        None,
        "headers",
        "NearLimit(0)",
        share,
    );
    rejects(
        builder().headers(ResponseHeaders::NearLimit(1.5)).build(),
        None,
        "headers",
        "NearLimit(1.5)",
        share,
    );
    rejects(
        builder()
            .headers(ResponseHeaders::NearLimit(f64::NAN))
            .build(),
        None,
        "headers",
        "NearLimit(NaN)",
        share,
    );
    let bound = "above 0 and at most 60s";
    rejects(
        builder().backend_timeout(Duration::ZERO).build(),
        None,
        "backend_timeout",
        "0ns",
        bound,
    );
    rejects(
        builder().backend_timeout(Duration::from_secs(61)).build(),
        None,
        "backend_timeout",
        "61s",
        bound,
    );
    assert!(builder().backend_timeout(Duration::MAX).build().is_err());
}

/// At any position in a key.
#[test]
fn keys_that_no_request_can_have_are_rejected() {
    let good = || key::header("key");
    let bad = || key::header("no header");
    let policy = || Policy::new("p", Quota::per_second(1));
    assert!(built(policy().by((good(), good().or(good())))).is_ok());
    for policy in [
        policy().by(bad()),
        policy().by((bad(), good())),
        policy().by((good(), bad())),
        policy().by(bad().or(good())),
        policy().by(good().or(bad())),
        policy().by((good(), good().or((good(), bad())))),
    ] {
        rejects(
            built(policy),
            Some("p"),
            "header",
            "\"no header\"",
            "the name of a header",
        );
    }
    let network = TrustedProxies::private().cidr("10.0.0.0/33");
    rejects(
        built(policy().by(good().or(key::client_ip(network)))),
        Some("p"),
        "cidr",
        "\"10.0.0.0/33\"",
        "a network such as 10.0.0.0/8, or an address",
    );
}

#[test]
fn a_limiter_takes_no_policy_about_requests() {
    let policy = || Policy::new("p", Quota::per_second(5));
    let limiter = |policy| Limiter::new(Memory::default(), policy);
    rejects(
        limiter(policy().by(key::header("key"))),
        Some("p"),
        "by",
        "set",
        "unset in a Limiter",
    );
    rejects(
        limiter(policy().cost_fn(|_| 1)),
        Some("p"),
        "cost_fn",
        "set",
        "unset in a Limiter",
    );
    rejects(
        limiter(policy().missing_key(MissingKey::Skip)),
        Some("p"),
        "missing_key",
        "set",
        "unset in a Limiter",
    );
    rejects(
        limiter(policy().cost(6)),
        Some("p"),
        "cost",
        "6",
        "at most the burst, 5",
    );
}

#[test]
fn keys_do_not_appear_in_logs() {
    let charge = Charge::new(PolicyId::new(0), b"secret", 1);
    let printed = format!("{charge:?}");
    assert!(
        !printed.contains("secret") && !printed.contains("115, 101"),
        "{printed}"
    );
}
