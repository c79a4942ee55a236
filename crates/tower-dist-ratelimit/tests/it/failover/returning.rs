//! A process that returns to the backend after it has decided alone.

use std::time::Duration;

use tokio::time::{Instant, advance};
use tower_dist_ratelimit::{FailureMode, Limiter, Policy, Quota, Source};

use super::ms;
use crate::support::{Mood, Scripted};

/// One of four processes that share a policy.
fn member(store: &Scripted, policy: Policy) -> Limiter {
    let limiter = Limiter::builder(store.clone(), policy);
    let limiter = limiter.failure_mode(FailureMode::Local { instances: 4 });
    limiter.build().unwrap()
}

/// Makes the store fail, so that the process decides alone on this many requests: at least five, which open the
/// circuit. Then lets it return with its probe.
async fn decide_alone(store: &Scripted, limiter: &Limiter, requests: u64) {
    store.is(Mood::Failing);
    for _ in 0..requests.max(5) {
        let decision = limiter.check("a").await.unwrap();
        assert_eq!(decision.source, Source::Local);
    }
    store.is(Mood::After(ms(1)));
    advance(ms(100)).await;
    let probe = limiter.check("a").await.unwrap();
    assert_eq!(probe.source, Source::Backend);
}

/// Returns how many requests are admitted in this time, of one every 4 or 5 ms.
async fn admitted(limiter: &Limiter, time: Duration) -> u64 {
    let (end, mut admitted) = (Instant::now() + time, 0);
    while Instant::now() < end {
        advance(ms(4)).await;
        admitted += u64::from(limiter.check("a").await.unwrap().allowed);
    }
    admitted
}

#[tokio::test(start_paused = true)]
async fn a_process_that_returns_stays_within_its_share_for_five_seconds() {
    let store = Scripted::new(Mood::After(ms(1)));
    let limiter = member(&store, Policy::new("p", Quota::per_second(80).burst(40)));
    decide_alone(&store, &limiter, 5).await;
    let share = admitted(&limiter, ms(4_900)).await;
    // 20 tokens per second, and at most the burst of 10.
    assert!((95..=109).contains(&share), "{share}");
    advance(ms(200)).await;
    let all = admitted(&limiter, ms(5_000)).await;
    assert!((395..=441).contains(&all), "{all}");
}

#[tokio::test(start_paused = true)]
async fn tokens_that_a_process_has_admitted_alone_are_charged_to_the_backend_once() {
    let quota = Quota::per_hour(400);
    for policy in [
        Policy::new("p", quota),
        Policy::new("p", quota).leaky_bucket(),
        Policy::new("p", quota).fixed_window(),
        Policy::new("p", quota).fixed_window_from_first_request(),
        Policy::new("p", quota).sliding_window(),
        Policy::new("p", quota).sliding_window_buckets(4),
        Policy::new("p", quota).sliding_window_log(),
    ] {
        let algorithm = policy.algorithm();
        let store = Scripted::new(Mood::After(ms(1)));
        let limiter = member(&store, policy);
        decide_alone(&store, &limiter, 50).await;
        // The five failed requests had reached the backend, which charged them.
        let charged = 5 + 1 + 50;
        for nth in 1..=3 {
            let decision = limiter.check("a").await.unwrap();
            assert_eq!(decision.source, Source::Backend);
            let remaining = decision.remaining;
            assert_eq!(remaining, 400 - charged - nth, "{algorithm:?}");
        }
        // Another key owes nothing.
        assert_eq!(limiter.check("b").await.unwrap().remaining, 399);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_backend_rejects_takes_nothing_from_the_share() {
    let store = Scripted::new(Mood::After(ms(1)));
    let limiter = member(&store, Policy::new("p", Quota::per_hour(40)));
    for _ in 0..40 {
        assert!(limiter.check("a").await.unwrap().allowed);
    }
    decide_alone(&store, &limiter, 5).await;
    for _ in 0..20 {
        let decision = limiter.check("a").await.unwrap();
        assert!(!decision.allowed);
        assert_ne!(decision.source, Source::Local);
    }
    store.is(Mood::Failing);
    // The deny cache has forgotten the key by then.
    advance(ms(1_100)).await;
    for left in [4, 3, 2, 1, 0] {
        let decision = limiter.check("a").await.unwrap();
        assert_eq!((decision.allowed, decision.remaining), (true, left));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_backend_fails_to_decide_takes_its_cost_from_the_share_once() {
    let store = Scripted::new(Mood::After(ms(1)));
    let limiter = member(&store, Policy::new("p", Quota::per_hour(80)));
    decide_alone(&store, &limiter, 5).await;
    for mood in [Mood::Failing, Mood::FailingAfter(ms(1))] {
        store.is(mood);
        let before = limiter.check("a").await.unwrap();
        let after = limiter.check("a").await.unwrap();
        assert_eq!(after.source, Source::Local);
        assert_eq!(before.remaining - after.remaining, 1);
    }
}
