//! Failures, events and the circuit of a limiter without a service.

use std::time::Duration;

use futures_util::FutureExt;
use tower_dist_ratelimit::{FailureMode, Limiter, Policy, Quota, backend::Memory};

use crate::support::{Mood, Remote, Scripted, Told};

#[tokio::test(start_paused = true)]
async fn a_dropped_peek_is_not_a_cancelled_request() {
    let told = Told::default();
    let remote = Remote::after(Duration::from_millis(1));
    let limiter = Limiter::builder(remote, Policy::new("p", Quota::per_hour(1)));
    let limiter = limiter.observer(told.clone()).build().unwrap();
    assert!(limiter.peek("a").now_or_never().is_none());
    assert!(told.all().is_empty());
    assert!(limiter.check("a").now_or_never().is_none());
    assert_eq!(told.all(), ["cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn an_immediate_answer_resets_the_count_of_failures() {
    let store = Scripted::new(Mood::Failing);
    let limiter = Limiter::builder(store.clone(), Policy::new("p", Quota::per_hour(1_000)));
    let limiter = limiter.failure_mode(FailureMode::Open).build().unwrap();
    // The first failure opens the circuit if it is the fifth in a row.
    for (mood, requests, asked) in [
        (Mood::Failing, 4, 4),
        (Mood::AtOnce, 1, 5),
        (Mood::Failing, 9, 10),
    ] {
        store.is(mood);
        for _ in 0..requests {
            assert!(limiter.check("a").await.unwrap().allowed);
        }
        assert_eq!(store.asked(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_without_a_burst_is_no_error_and_rejects() {
    let policy = Policy::new("p", Quota::per_second(1)).dynamic_quotas();
    let limiter = Limiter::new(Memory::default(), policy).unwrap();
    let nothing = limiter.with_quota(Quota::per_second(5).burst(0));
    let rejected = nothing.check("a").await.unwrap();
    assert_eq!((rejected.allowed, rejected.retry_after), (false, None));
    // Policies without a burst reject requests under this quota, too.
    for policy in [
        Policy::new("p", Quota::per_second(1)).fixed_window(),
        Policy::new("p", Quota::per_second(1)).sliding_window(),
        Policy::new("p", Quota::per_second(1)).sliding_window_log(),
        Policy::new("p", Quota::per_second(1)).fixed_window_from_first_request(),
        Policy::new("p", Quota::per_second(1)).leaky_queue(std::time::Duration::from_secs(1)),
    ] {
        let limiter = Limiter::new(Memory::default(), policy.dynamic_quotas()).unwrap();
        let nothing = limiter.with_quota(Quota::per_second(5).burst(0));
        assert!(!nothing.check("a").await.unwrap().allowed, "{nothing:?}");
    }
}
