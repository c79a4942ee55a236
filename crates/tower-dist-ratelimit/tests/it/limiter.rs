//! The limiter without HTTP.

mod watching;

use std::time::Duration;

use tower_dist_ratelimit::{FailureMode, Limiter, Policy, Quota, backend::Memory};

use crate::support::{Broken, Remote, slow};

fn limiter(quota: Quota) -> Limiter {
    Limiter::new(Memory::default(), Policy::new("p", quota)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn rejected_until_retry_after_and_allowed_at_it() {
    let limiter = limiter(Quota::per_second(3).burst(1));
    assert!(limiter.check("a").await.unwrap().allowed);
    let rejected = limiter.check("a").await.unwrap();
    let wait = rejected.retry_after.unwrap();
    assert_eq!(wait, Duration::from_nanos(333_333_334));
    tokio::time::advance(wait - Duration::from_nanos(1)).await;
    assert!(!limiter.check("a").await.unwrap().allowed);
    tokio::time::advance(Duration::from_nanos(1)).await;
    assert!(limiter.check("a").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_charges_no_tokens() {
    // Peers charge before they decide, so a client that keeps sending requests stays rejected.
    let limiter = limiter(slow(2));
    limiter.check_n("a", 2).await.unwrap();
    for _ in 0..1000 {
        assert!(!limiter.check("a").await.unwrap().allowed);
        assert!(!limiter.check_n("a", 3).await.unwrap().allowed);
        tokio::time::advance(Duration::from_nanos(999_999)).await;
    }
    tokio::time::advance(Duration::from_nanos(1000)).await;
    assert!(limiter.check("a").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn after_idle_time_there_is_one_burst_and_not_one_more() {
    let limiter = limiter(Quota::per_second(10).burst(5));
    for _ in 0..3 {
        let mut admitted = 0;
        while limiter.check("a").await.unwrap().allowed {
            admitted += 1;
        }
        assert_eq!(admitted, 5);
        tokio::time::advance(Duration::from_secs(3600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_hour_at_333_a_second_loses_no_request() {
    let limiter = limiter(Quota::per_second(333).burst(400));
    let mut admitted = 0;
    for _ in 0..=3600 {
        while limiter.check("a").await.unwrap().allowed {
            admitted += 1;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(admitted, 400 + 3600 * 333);
}

#[tokio::test(start_paused = true)]
async fn a_peek_takes_no_tokens_and_returns_the_remaining_tokens() {
    let limiter = limiter(slow(3));
    limiter.check("a").await.unwrap();
    for _ in 0..9 {
        let seen = limiter.peek("a").await.unwrap();
        assert_eq!(
            (seen.remaining, seen.reset_after),
            (2, Duration::from_secs(1))
        );
    }
    assert_eq!(limiter.peek("b").await.unwrap().remaining, 3);
}

#[tokio::test(start_paused = true)]
async fn a_refund_returns_tokens_up_to_the_burst() {
    let limiter = limiter(slow(3));
    limiter.check_n("a", 3).await.unwrap();
    limiter.refund("a", 2).await.unwrap();
    assert_eq!(limiter.peek("a").await.unwrap().remaining, 2);
    limiter.refund("a", u64::MAX).await.unwrap();
    assert_eq!(limiter.peek("a").await.unwrap().remaining, 3);
    limiter.refund("new", 1).await.unwrap();
    assert_eq!(limiter.peek("new").await.unwrap().remaining, 3);
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_one_key() {
    let limiter = limiter(slow(1));
    limiter.check("a").await.unwrap();
    limiter.check("b").await.unwrap();
    limiter.reset("a").await.unwrap();
    assert!(limiter.check("a").await.unwrap().allowed);
    assert!(!limiter.check("b").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn clones_count_in_the_same_bucket() {
    let limiter = limiter(slow(1));
    assert!(limiter.clone().check("a").await.unwrap().allowed);
    assert!(!limiter.check("a").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn keys_of_all_kinds_are_told_apart() {
    let limiter = limiter(slow(1));
    assert!(limiter.check("a").await.unwrap().allowed);
    assert!(limiter.check(7).await.unwrap().allowed);
    assert!(limiter.check(("a", 7)).await.unwrap().allowed);
    assert!(limiter.check(None::<&str>).await.unwrap().allowed);
    assert!(!limiter.check(String::from("a")).await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_check_waits_for_a_remote_backend_up_to_the_timeout() {
    let remote = |millis| {
        let remote = Remote::after(Duration::from_millis(millis));
        let limiter = Limiter::builder(remote, Policy::new("p", slow(2)));
        limiter.failure_mode(FailureMode::Closed).build().unwrap()
    };
    let near = remote(49);
    assert!(near.check("a").await.unwrap().allowed);
    near.refund("a", 1).await.unwrap();
    near.reset("a").await.unwrap();
    assert_eq!(near.peek("a").await.unwrap().remaining, 2);

    let far = remote(51);
    let started = tokio::time::Instant::now();
    assert!(far.check("a").await.unwrap_err().is_late());
    assert_eq!(started.elapsed(), Duration::from_millis(50));
    assert!(far.refund("a", 1).await.unwrap_err().is_late());
    assert!(far.reset("a").await.unwrap_err().is_late());
}

#[tokio::test(start_paused = true)]
async fn a_failing_backend_is_an_error_if_configured() {
    let limiter = Limiter::builder(Broken, Policy::new("p", slow(1)));
    let limiter = limiter.failure_mode(FailureMode::Closed).build().unwrap();
    let error = limiter.check("a").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the rate limit's backend did not decide: out of order"
    );
    assert!(!error.is_late());
    assert!(limiter.refund("a", 1).await.is_err());
    assert!(limiter.reset("a").await.is_err());
}
