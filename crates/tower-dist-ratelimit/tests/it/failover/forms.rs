//! The failure modes of call limits, throttles and limiters.

use std::{convert::Infallible, time::Duration};

use tokio::time::{Instant, advance};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_dist_ratelimit::{
    CallLimitLayer, Decision, FailureMode, LimitError, Limiter, Policy, Quota, RateLimited, Reason,
    Source,
};

use super::{ms, plenty};
use crate::support::{Mood, Scripted};

async fn work(job: u64) -> Result<u64, Infallible> {
    Ok(job)
}

async fn call<S>(service: &mut S, job: u64) -> Result<u64, RateLimited>
where
    S: Service<u64, Response = u64, Error = LimitError<Infallible>>,
{
    let result = match service.ready().await {
        Ok(ready) => ready.call(job).await,
        Err(error) => Err(error),
    };
    result.map_err(|error| match error {
        LimitError::RateLimited(rejected) => rejected,
        LimitError::Inner(never) => match never {},
    })
}

fn ten_by_two() -> (Policy, FailureMode) {
    let policy = Policy::new("p", Quota::per_second(10).burst(2));
    (policy, FailureMode::Local { instances: 2 })
}

#[tokio::test(start_paused = true)]
async fn calls_above_the_share_fail_with_reduced_capacity() {
    let (policy, on_error) = ten_by_two();
    let layer = CallLimitLayer::builder(Scripted::new(Mood::Failing)).limit(policy);
    let layer = layer.failure_mode(on_error).build().unwrap();
    let mut service = layer.layer(service_fn(work));
    assert_eq!(call(&mut service, 1).await.unwrap(), 1);
    let rejected = call(&mut service, 2).await.unwrap_err();
    assert_eq!(rejected.reason(), Reason::ReducedCapacity);
    assert_eq!(rejected.retry_after(), Some(ms(200)));
    let sources = rejected.decisions().map(|(_, one)| one.source);
    assert_eq!(sources.collect::<Vec<_>>(), [Source::Local]);
    assert_eq!(
        rejected.to_string(),
        r#"temporarily reduced rate limit exceeded for policy "p"; retry after 200ms"#
    );
}

#[tokio::test(start_paused = true)]
async fn denied_calls_report_the_source_denied() {
    let (policy, _) = ten_by_two();
    let layer = CallLimitLayer::builder(Scripted::new(Mood::Silent)).limit(policy);
    let layer = layer.failure_mode(FailureMode::Closed).build().unwrap();
    let mut service = layer.layer(service_fn(work));
    for _ in 0..5 {
        let rejected = call(&mut service, 1).await.unwrap_err();
        assert_eq!(rejected.reason(), Reason::Backend);
        let (_, decision) = rejected.decisions().next().unwrap();
        assert_eq!((decision.source, decision.limit), (Source::Denied, 10));
        assert_eq!(rejected.violated().count(), 0);
    }
    let rejected = call(&mut service, 1).await.unwrap_err();
    let wait = rejected.retry_after().unwrap();
    assert!(wait >= ms(50) && wait <= ms(101), "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_wait_for_tokens_of_the_share() {
    let (policy, on_error) = ten_by_two();
    let store = Scripted::new(Mood::Failing);
    let layer = CallLimitLayer::builder(store.clone()).limit(policy);
    let layer = layer.failure_mode(on_error).waiting().build().unwrap();
    let started = Instant::now();
    let served = service_fn(move |_: u64| {
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap();
        async move { Ok::<_, Infallible>(millis) }
    });
    let mut service = layer.layer(served);
    for at in [0, 200, 400, 600] {
        assert_eq!(call(&mut service, 1).await.unwrap(), at);
    }
}

fn limiter(mood: Mood, on_error: FailureMode) -> (Scripted, Limiter) {
    let store = Scripted::new(mood);
    let limiter = Limiter::builder(store.clone(), Policy::new("p", plenty()));
    (store, limiter.failure_mode(on_error).build().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_limiter_reports_the_source_of_a_decision() {
    let decided = async |mood, on_error| {
        let (_, limiter) = limiter(mood, on_error);
        limiter.check("a").await
    };
    let local = FailureMode::Local { instances: 36 };
    for (mood, on_error, source, remaining) in [
        (Mood::AtOnce, local, Source::Backend, 3_599),
        (Mood::After(ms(49)), local, Source::Backend, 3_599),
        (Mood::After(ms(51)), local, Source::Local, 99),
        (Mood::Failing, local, Source::Local, 99),
        (Mood::Failing, FailureMode::Open, Source::Allowed, 0),
        (
            Mood::FailingAfter(ms(1)),
            FailureMode::Open,
            Source::Allowed,
            0,
        ),
    ] {
        let Decision {
            allowed,
            source: by,
            remaining: left,
            ..
        } = decided(mood, on_error).await.unwrap();
        assert_eq!((allowed, by, left), (true, source, remaining), "{mood:?}");
    }
    let error = decided(Mood::Silent, FailureMode::Closed)
        .await
        .unwrap_err();
    assert!(error.is_timeout());
}

#[tokio::test(start_paused = true)]
async fn a_limiter_s_errors_end_with_the_circuit_and_name_it() {
    let (store, limiter) = limiter(Mood::Failing, FailureMode::Closed);
    for _ in 0..5 {
        let error = limiter.check("a").await.unwrap_err();
        assert!(error.to_string().ends_with("out of order"), "{error}");
    }
    for error in [
        limiter.check("a").await.unwrap_err(),
        limiter.refund("a", 1).await.unwrap_err(),
        limiter.reset("a").await.unwrap_err(),
    ] {
        assert_eq!(
            error.to_string(),
            "the rate limit's backend did not decide: the circuit breaker is open after repeated failures"
        );
    }
    assert_eq!(store.asked(), 5);
    store.is(Mood::After(ms(1)));
    advance(ms(100)).await;
    assert_eq!(limiter.check("a").await.unwrap().source, Source::Backend);
    limiter.refund("a", 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn refunds_while_the_circuit_is_open_go_to_the_deciding_component() {
    let (store, limiter) = limiter(Mood::Failing, FailureMode::Local { instances: 36 });
    for _ in 0..5 {
        limiter.check("a").await.unwrap();
    }
    limiter.refund("a", 3).await.unwrap();
    assert_eq!(limiter.peek("a").await.unwrap().remaining, 98);
    assert!(
        limiter.reset("a").await.is_err(),
        "the backend has not received it"
    );
    assert_eq!(limiter.peek("a").await.unwrap().remaining, 100);
    assert_eq!(store.asked(), 5);
}

#[tokio::test(start_paused = true)]
async fn invalid_quotas_are_no_failures_of_the_backend() {
    let store = Scripted::new(Mood::AtOnce);
    let fixed = Limiter::new(store.clone(), Policy::new("fixed", plenty())).unwrap();
    let dynamic = Policy::new("dynamic", plenty()).dynamic_quotas();
    let dynamic = Limiter::new(store.clone(), dynamic).unwrap();
    for _ in 0..9 {
        let other = fixed.with_quota(Quota::per_second(1));
        assert!(other.check("a").await.is_err());
        let never = dynamic.with_quota(Quota::new(1, Duration::ZERO));
        assert!(never.check("a").await.is_err());
    }
    assert_eq!(store.asked(), 0);
    for limiter in [fixed, dynamic] {
        assert_eq!(limiter.check("a").await.unwrap().source, Source::Backend);
    }
}
