//! Counts that are exchanged afterwards.

use std::time::Duration;

use tokio::time::{Instant, advance, sleep};
use tower_dist_ratelimit::{Limiter, Policy, Quota, Sharing, Source};

use crate::wan::Wan;

const PERIOD: Duration = Duration::from_millis(100);

fn sharing(wan: &Wan) -> Limiter {
    let policy = Policy::new("shared", Quota::per_second(100).burst(20));
    let builder = Limiter::builder(wan.clone(), policy);
    builder
        .sharing(Sharing::Asynchronous(PERIOD))
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_for_the_store() {
    let wan = Wan::away(Duration::from_millis(20));
    let limiter = sharing(&wan);
    for _ in 0..100 {
        sleep(Duration::from_millis(3)).await;
        let asked = Instant::now();
        let decision = limiter.check("key").await.unwrap();
        assert_eq!(decision.source, Source::Asynchronous);
        assert!(asked.elapsed().is_zero());
    }
    // One at first, one some time in the first 100 ms, and then one in each.
    assert!((2..=5).contains(&wan.trips()), "{}", wan.trips());
}

#[tokio::test(start_paused = true)]
async fn what_one_instance_used_others_know_after_an_exchange() {
    let wan = Wan::away(Duration::ZERO);
    let (one, other) = (sharing(&wan), sharing(&wan));
    for _ in 0..20 {
        assert!(one.check("key").await.unwrap().allowed);
    }
    assert!(!one.check("key").await.unwrap().allowed);
    // It has not heard of that.
    assert!(other.check_n("key", 20).await.unwrap().allowed);
    // In all 40 of 20 were used: the rest is a debt, for both.
    sleep(2 * PERIOD).await;
    for limiter in [&one, &other] {
        let refused = limiter.check_n("key", 5).await.unwrap();
        assert!(!refused.allowed, "{refused:?}");
    }
    sleep(Duration::from_millis(400)).await;
    assert!(one.check_n("key", 5).await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_asked_about_any_more_costs_no_round_trips() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = sharing(&wan);
    limiter.check("key").await.unwrap();
    sleep(5 * PERIOD).await;
    let trips = wan.trips();
    sleep(50 * PERIOD).await;
    assert_eq!(wan.trips(), trips);
    let alive = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    assert_eq!(alive, 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_silent_stops_nobody() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = sharing(&wan);
    wan.is_silent();
    for _ in 0..100 {
        advance(Duration::from_millis(20)).await;
        assert!(limiter.check("key").await.unwrap().allowed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_and_a_refund_are_seen_here_at_once() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = sharing(&wan);
    assert!(limiter.check_n("key", 20).await.unwrap().allowed);
    limiter.refund("key", 3).await.unwrap();
    assert!(limiter.check_n("key", 3).await.unwrap().allowed);
    limiter.reset("key").await.unwrap();
    assert!(limiter.check_n("key", 20).await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_raised_limit_is_that_of_the_next_exchange() {
    let wan = Wan::away(Duration::ZERO);
    let policy = Policy::new("shared", Quota::per_second(10)).dynamic_quotas();
    let limiter = Limiter::builder(wan.clone(), policy)
        .sharing(Sharing::Asynchronous(PERIOD))
        .build()
        .unwrap();
    let small = limiter.with_quota(Quota::per_second(10));
    for _ in 0..10 {
        sleep(Duration::from_millis(20)).await;
        small.check("key").await.unwrap();
    }
    // Asked about all the time, so the exchange never ends.
    let large = limiter.with_quota(Quota::per_second(1_000));
    for number in 0..4_000 {
        sleep(Duration::from_millis(2)).await;
        let decision = large.check("key").await.unwrap();
        assert!(decision.allowed, "{number}: {decision:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_too_long_to_keep_are_decided_exactly() {
    let limiter = sharing(&Wan::away(Duration::ZERO));
    for (length, source) in [(900, Source::Asynchronous), (1_100, Source::Backend)] {
        let decision = limiter.check("k".repeat(length)).await.unwrap();
        assert_eq!(decision.source, source, "{length}");
    }
}
