//! Requests of any type: a rejection is an error.

use std::{error::Error, io, time::Duration};

use tokio::time::Instant;
use tower::{BoxError, Layer, Service, ServiceExt, limit::ConcurrencyLimitLayer, service_fn};
use tower_dist_ratelimit::{
    CallLimit, CallLimitLayer, FailureMode, LimitError, MissingKey, Policy, Quota, RateLimited,
    Reason, RequestPolicy, backend::Memory, key,
};
use tower_test::mock;

use crate::support::{Broken, Noting, Remote, slow};

/// A job with an optional user and a size.
struct Job(Option<u64>, u64);

async fn work(Job(_, size): Job) -> Result<u64, io::Error> {
    if size == 99 {
        return Err(io::Error::other("too big"));
    }
    Ok(size)
}

async fn call<S>(service: &mut S, job: Job) -> Result<u64, LimitError<io::Error>>
where
    S: Service<Job, Response = u64, Error = LimitError<io::Error>>,
{
    service.ready().await?.call(job).await
}

fn rejected<T: std::fmt::Debug, E>(result: Result<T, LimitError<E>>) -> RateLimited {
    match result {
        Err(LimitError::RateLimited(rejected)) => rejected,
        Err(LimitError::Inner(_)) => panic!("the inner service failed"),
        Ok(response) => panic!("{response:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_key_has_its_bucket_and_each_request_its_cost() {
    let sized = RequestPolicy::from(Policy::new("size", slow(50)));
    let layer = CallLimitLayer::builder(Memory::default())
        .limit(Policy::new("user", slow(2)).by_request(|job: &Job| job.0))
        .limit(sized.cost_fn(|job: &Job| job.1))
        .build()
        .unwrap();
    let mut service = layer.layer(service_fn(work));
    assert_eq!(call(&mut service, Job(Some(1), 20)).await.unwrap(), 20);
    assert_eq!(call(&mut service, Job(Some(1), 20)).await.unwrap(), 20);

    let by_user = rejected(call(&mut service, Job(Some(1), 10)).await);
    assert_eq!(by_user.reason(), Reason::Quota);
    assert_eq!(by_user.retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(by_user.violated().collect::<Vec<_>>(), ["user"]);
    let decisions: Vec<_> = by_user
        .decisions()
        .map(|(name, one)| (name, one.remaining))
        .collect();
    assert_eq!(decisions, [("user", 0), ("size", 10)], "charged to none");
    assert_eq!(
        by_user.to_string(),
        r#"rate limit exceeded for policy "user"; retry after 1s"#
    );

    let by_size = rejected(call(&mut service, Job(Some(2), 11)).await);
    assert_eq!(by_size.violated().collect::<Vec<_>>(), ["size"]);
    let never = rejected(call(&mut service, Job(Some(2), 51)).await);
    assert_eq!(never.retry_after(), None);
    assert_eq!(
        never.to_string(),
        r#"rate limit exceeded for policy "size""#
    );
    assert_eq!(call(&mut service, Job(Some(2), 10)).await.unwrap(), 10);
}

#[tokio::test(start_paused = true)]
async fn inner_errors_are_kept() {
    let layer = CallLimitLayer::builder(Memory::default());
    let layer = layer.limit(Policy::new("all", slow(1))).build().unwrap();
    let mut service = layer.layer(service_fn(work));
    let error = call(&mut service, Job(None, 99)).await.unwrap_err();
    assert_eq!(error.to_string(), "too big");
    assert!(error.source().is_none());
    assert_eq!(error.into_inner().unwrap().kind(), io::ErrorKind::Other);
    let error = call(&mut service, Job(None, 1)).await.unwrap_err();
    assert!(error.into_inner().is_none());

    // Boxed errors keep their type.
    let error = call(&mut service, Job(None, 1)).await.unwrap_err();
    let boxed: BoxError = error.into_boxed();
    assert!(boxed.downcast_ref::<RateLimited>().is_some());
    let inner = LimitError::Inner(BoxError::from("as it was")).into_boxed();
    assert_eq!(inner.to_string(), "as it was");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_is_handled_by_the_policy_s_setting() {
    for (action, reason) in [
        (MissingKey::Shared, Some(Reason::Quota)),
        (MissingKey::Skip, None),
        (MissingKey::Reject, Some(Reason::MissingKey)),
    ] {
        let policy = Policy::new("user", slow(1)).missing_key(action);
        let layer = CallLimitLayer::builder(Memory::default());
        let layer = layer.limit(policy.by_request(|job: &Job| job.0));
        let mut service = layer.build().unwrap().layer(service_fn(work));
        let _ = call(&mut service, Job(None, 1)).await;
        let second = call(&mut service, Job(None, 1)).await;
        match reason {
            None => assert!(second.is_ok()),
            Some(reason) => assert_eq!(rejected(second).reason(), reason),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn quotas_can_depend_on_the_request() {
    let noting = Noting::default();
    let policy = RequestPolicy::from(Policy::new("all", slow(1)));
    let layer = CallLimitLayer::builder(noting.clone())
        .limit(policy.quota_by(|job: &Job| job.0.map(Quota::per_second)))
        .build()
        .unwrap();
    let mut service = layer.layer(service_fn(work));
    for (user, quota) in [(None, None), (Some(5), Some(Quota::per_second(5)))] {
        call(&mut service, Job(user, 1)).await.unwrap();
        assert_eq!(noting.seen(), [(1, quota)]);
    }
    assert_eq!(
        rejected(call(&mut service, Job(Some(0), 1)).await).retry_after(),
        None
    );
}

#[test]
fn policies_for_http_are_rejected_for_other_requests() {
    let built = |policy| {
        CallLimitLayer::<Job>::builder(Memory::default())
            .limit(policy)
            .build()
    };
    let policy = || Policy::new("p", slow(1));
    for (policy, field) in [
        (policy().by(key::header("a")), "by"),
        (policy().cost_fn(|_| 1), "cost_fn"),
        (policy().quota_by(|_| None), "quota_by"),
        (policy().quota_by_async(|_| async { None }), "quota_by"),
    ] {
        let error = built(policy).unwrap_err();
        assert_eq!((error.policy(), error.field()), (Some("p"), field));
        assert_eq!(error.bound(), "unset in a CallLimitLayer or ThrottleLayer");
    }
    assert_eq!(built(policy().cost(2)).unwrap_err().field(), "cost");
    assert!(built(policy()).is_ok());
}

fn remote(delay: Duration, on_error: FailureMode) -> CallLimitLayer<Job> {
    CallLimitLayer::builder(Remote::after(delay))
        .limit(Policy::new("all", slow(1)))
        .failure_mode(on_error)
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_late_decision_decides_like_an_early_one_and_a_too_late_one_not() {
    let layer = remote(Duration::from_millis(3), FailureMode::Closed);
    let mut service = layer.layer(service_fn(work));
    let started = Instant::now();
    assert!(call(&mut service, Job(None, 1)).await.is_ok());
    assert_eq!(started.elapsed(), Duration::from_millis(3));
    assert_eq!(
        rejected(call(&mut service, Job(None, 1)).await).reason(),
        Reason::Quota
    );

    let layer = remote(Duration::from_secs(3), FailureMode::Closed);
    let late = call(&mut layer.layer(service_fn(work)), Job(None, 1)).await;
    assert_eq!(rejected(late).reason(), Reason::Backend);
    let layer = remote(Duration::from_secs(3), FailureMode::Open);
    assert!(
        call(&mut layer.layer(service_fn(work)), Job(None, 1))
            .await
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn rejections_and_dropped_waits_hold_no_permit() {
    let layer = remote(Duration::from_millis(3), FailureMode::Closed);
    let inner = ConcurrencyLimitLayer::new(1).layer(service_fn(work));
    let mut service = layer.layer(inner);
    let mut other = service.clone();
    drop(service.ready().await.unwrap().call(Job(None, 1)));
    // The backend charged the dropped call, so it rejects this call.
    let late = call(&mut other, Job(None, 1)).await;
    assert_eq!(rejected(late).reason(), Reason::Quota);
    let mut third = service.clone();
    let ready = tokio::time::timeout(Duration::ZERO, third.ready()).await;
    assert!(ready.is_ok());

    let layer = CallLimitLayer::builder(Broken).limit(Policy::new("all", slow(1)));
    let layer = layer.failure_mode(FailureMode::Closed).build().unwrap();
    let inner = ConcurrencyLimitLayer::new(1).layer(service_fn(work));
    let mut service = layer.layer(inner);
    let mut other = service.clone();
    let unpolled = service.ready().await.unwrap().call(Job(None, 1));
    let ready = tokio::time::timeout(Duration::ZERO, other.ready()).await;
    assert!(ready.is_ok());
    assert_eq!(rejected(unpolled.await).reason(), Reason::Backend);
}

#[tokio::test(start_paused = true)]
async fn readiness_is_the_inner_service_s_and_the_ready_instance_is_called() {
    let layer: CallLimitLayer<()> = CallLimitLayer::builder(Memory::default())
        .limit(Policy::new("all", slow(9)))
        .build()
        .unwrap();
    let (inner, mut handle) = mock::pair::<(), ()>();
    let mut service: CallLimit<_, ()> = layer.layer(inner);
    handle.allow(0);
    let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
    assert!(service.poll_ready(cx).is_pending());
    handle.allow(1);
    assert!(service.poll_ready(cx).is_ready());
    let call = service.call(());
    handle.next_request().await.unwrap().1.send_response(());
    call.await.unwrap();
    handle.send_error("broken");
    let Err(LimitError::Inner(error)) = service.ready().await.map(|_| ()) else {
        panic!("ready")
    };
    assert_eq!(error.to_string(), "broken");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_its_key_is_rejected_with_the_message_of_its_missing_key_action() {
    let messages = [
        (MissingKey::Reject, "rate-limit key missing"),
        (
            MissingKey::Error,
            "rate-limit key missing: the server does not provide it",
        ),
    ];
    for (action, message) in messages {
        let policy = Policy::new("user", slow(9)).missing_key(action);
        let layer =
            CallLimitLayer::builder(Memory::default()).limit(policy.by_request(|job: &Job| job.0));
        let mut service = layer.build().unwrap().layer(service_fn(work));
        let missing = rejected(call(&mut service, Job(None, 1)).await);
        assert_eq!(missing.to_string(), message);
    }
}
