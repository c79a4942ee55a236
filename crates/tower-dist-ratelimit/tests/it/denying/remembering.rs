//! Remembered rejections, and how long they last.

use http::{Method, Request};
use tower::Layer;
use tower_dist_ratelimit::{Consistency, RateLimitLayer, key};

use super::*;
use crate::support::{Probe, send};

/// Only a request that takes tokens lowers the remaining tokens below the number in a rejection.
#[tokio::test(start_paused = true)]
async fn a_peek_removes_no_rejection() {
    let wan = Wan::away(AWAY);
    let limiter = limiter(&wan, two());
    use_up(&limiter).await;
    assert_eq!(limiter.peek("key").await.unwrap().source, Source::Backend);
    let rejected = limiter.check("key").await.unwrap();
    assert_eq!(rejected.source, Source::DenyCache);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_can_never_pass_is_rejected_without_a_round_trip() {
    let wan = Wan::away(AWAY);
    let limiter = limiter(&wan, two());
    for source in [Source::Backend, Source::DenyCache] {
        let hopeless = limiter.check_n("key", 3).await.unwrap();
        assert_eq!((hopeless.source, hopeless.retry_after), (source, None));
    }
}

/// The request is sent after the reset and decided before the reset arrives.
#[tokio::test(start_paused = true)]
async fn a_rejection_that_a_reset_overtakes_is_not_remembered() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = limiter(&wan, two());
    use_up(&limiter).await;
    advance(Duration::from_millis(1)).await;
    wan.is_off(2 * AWAY, AWAY);
    let reset = limiter.reset("key");
    let overtaking = async {
        sleep(Duration::from_millis(1)).await;
        wan.is_away(Duration::ZERO);
        let rejected = limiter.check("key").await.unwrap();
        assert_eq!(
            (rejected.allowed, rejected.source),
            (false, Source::Backend)
        );
    };
    let (reset, ()) = futures_util::future::join(reset, overtaking).await;
    reset.unwrap();
    assert!(limiter.check("key").await.unwrap().allowed);
}

/// A token takes a third of a second, which is not a whole number of nanoseconds.
#[tokio::test(start_paused = true)]
async fn the_wait_for_more_tokens_than_were_rejected_is_rounded_up() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = limiter(&wan, Policy::new("three", Quota::per_second(3).burst(4)));
    assert!(limiter.check_n("key", 4).await.unwrap().allowed);
    let rejected = limiter.check_n("key", 3).await.unwrap();
    assert_eq!(rejected.retry_after, Some(Duration::from_secs(1)));
    let costly = limiter.check_n("key", 4).await.unwrap();
    assert_eq!(costly.source, Source::DenyCache);
    assert_eq!(
        costly.retry_after,
        Some(Duration::from_nanos(1_333_333_334))
    );
}

/// While the rejection is in flight, the key's quota is raised for one request, so the key's tokens return sooner.
#[tokio::test(start_paused = true)]
async fn a_rejection_that_a_raised_limit_overtakes_is_not_remembered() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = limiter(&wan, two().dynamic_quotas());
    let small = limiter.with_quota(Quota::per_second(2));
    let large = limiter.with_quota(Quota::per_second(20));
    for _ in 0..2 {
        assert!(small.check("key").await.unwrap().allowed);
    }
    wan.is_off(Duration::ZERO, 2 * AWAY);
    let meanwhile = async {
        sleep(Duration::from_millis(1)).await;
        wan.is_away(Duration::ZERO);
        assert!(large.check("key").await.unwrap().allowed);
    };
    let (rejected, ()) = futures_util::future::join(small.check("key"), meanwhile).await;
    assert_eq!(rejected.unwrap().source, Source::Backend);
    advance(Duration::from_millis(200)).await;
    assert!(small.check("key").await.unwrap().allowed);
}

/// Only one policy applies to a GET. It has a key in common with the rejected PUT.
#[tokio::test(start_paused = true)]
async fn a_limit_raised_in_another_set_of_policies_applies_immediately() {
    let wan = Wan::away(Duration::ZERO);
    let large = |head: key::RequestParts<'_>| {
        let is_large = *head.method() == Method::GET;
        is_large.then(|| Quota::per_second(20))
    };
    let layer = RateLimitLayer::builder(wan.clone())
        .limit(two().by(key::header("key")).quota_by(large))
        .limit(
            Policy::new("writes", Quota::per_second(1_000))
                .only_if(|head| *head.method() == Method::PUT),
        )
        .build()
        .unwrap();
    let mut service = layer.layer(Probe::default());
    let from = |method: Method| {
        let request = Request::builder().method(method).header("key", "one");
        request.body(()).unwrap()
    };
    for status in [200, 200, 429] {
        assert_eq!(send(&mut service, from(Method::PUT)).await.status(), status);
    }
    assert_eq!(send(&mut service, from(Method::GET)).await.status(), 200);
    advance(Duration::from_millis(200)).await;
    assert_eq!(send(&mut service, from(Method::PUT)).await.status(), 200);
}

/// A peek without the quota puts no other quota in force.
#[tokio::test(start_paused = true)]
async fn a_peek_under_another_quota_invalidates_no_rejection() {
    let limiter = limiter(&Wan::away(AWAY), two().dynamic_quotas());
    let small = limiter.with_quota(Quota::per_second(1));
    assert!(small.check("key").await.unwrap().allowed);
    for source in [Source::Backend, Source::DenyCache, Source::DenyCache] {
        assert_eq!(small.check("key").await.unwrap().source, source);
        limiter.peek("key").await.unwrap();
    }
}

/// With leases, the cache is queried only for requests that no lease pays for.
#[tokio::test(start_paused = true)]
async fn with_leases_a_rejection_of_a_key_without_a_lease_is_repeated() {
    let wan = Wan::away(AWAY);
    let limiter = Limiter::builder(wan.clone(), two()).consistency(Consistency::leased());
    let limiter = limiter.build().unwrap();
    use_up(&limiter).await;
    let rejected = limiter.check("key").await.unwrap();
    assert_eq!(rejected.source, Source::DenyCache);
    limiter.refund("key", 1).await.unwrap();
    assert!(limiter.check("key").await.unwrap().allowed);
}
