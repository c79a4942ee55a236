//! Rejections in the deny cache.

mod remembering;
mod sets;

use std::time::Duration;

use tokio::time::{Instant, advance, sleep, sleep_until};
use tower_dist_ratelimit::{
    Decision, FailureMode, Limiter, Policy, Quota, Source, backend::Memory,
};

use crate::wan::Wan;

const AWAY: Duration = Duration::from_millis(10);

fn limiter(wan: &Wan, policy: Policy) -> Limiter {
    Limiter::builder(wan.clone(), policy)
        .failure_mode(FailureMode::Closed)
        .build()
        .unwrap()
}

/// One token per 500 ms, with a burst of two.
fn two() -> Policy {
    Policy::new("two", Quota::per_second(2))
}

async fn use_up(limiter: &Limiter) -> Decision {
    for _ in 0..2 {
        assert!(limiter.check("key").await.unwrap().allowed);
    }
    let rejected = limiter.check("key").await.unwrap();
    assert_eq!(
        (rejected.allowed, rejected.source),
        (false, Source::Backend)
    );
    rejected
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_repeated_without_a_round_trip_and_names_the_same_instant() {
    let wan = Wan::away(AWAY);
    let limiter = limiter(&wan, two());
    let rejected = use_up(&limiter).await;
    let (trips, due) = (wan.trips(), Instant::now() + rejected.retry_after.unwrap());
    let full = Instant::now() + rejected.reset_after;
    for _ in 0..10 {
        sleep(AWAY).await;
        let (asked, decision) = (Instant::now(), limiter.check("key").await.unwrap());
        assert!(asked.elapsed().is_zero());
        assert_eq!(
            (decision.allowed, decision.source),
            (false, Source::DenyCache)
        );
        assert_eq!(asked + decision.retry_after.unwrap(), due);
        assert_eq!(asked + decision.reset_after, full);
        assert_eq!((decision.limit, decision.remaining), (2, 0));
    }
    assert_eq!(wan.trips(), trips);
    sleep_until(due).await;
    assert!(limiter.check("key").await.unwrap().allowed);
}

/// The wait counts from the time of the request. The backend decides later, so its own wait ends no sooner.
#[tokio::test(start_paused = true)]
async fn no_request_is_rejected_that_the_backend_would_admit() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = limiter(&wan, two());
    limiter.check("key").await.unwrap();
    limiter.check("key").await.unwrap();
    // The request arrives immediately; the answer takes 200 ms.
    wan.is_off(Duration::ZERO, Duration::from_millis(200));
    let asked = Instant::now();
    let builder = Limiter::builder(wan.clone(), two()).backend_timeout(Duration::from_secs(1));
    let slow = builder.build().unwrap();
    let rejected = slow.check("key").await.unwrap();
    assert_eq!(rejected.retry_after, Some(Duration::from_millis(500)));
    wan.is_away(Duration::ZERO);
    sleep_until(asked + Duration::from_millis(499)).await;
    assert_eq!(slow.check("key").await.unwrap().source, Source::DenyCache);
    advance(Duration::from_millis(1)).await;
    assert!(
        slow.check("key").await.unwrap().allowed,
        "the backend has a token"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lower_cost_goes_to_the_backend_and_a_higher_cost_does_not() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = limiter(&wan, Policy::new("ten", Quota::per_second(10)));
    assert!(limiter.check_n("key", 8).await.unwrap().allowed);
    assert!(!limiter.check_n("key", 5).await.unwrap().allowed);
    let costly = limiter.check_n("key", 7).await.unwrap();
    assert_eq!((costly.allowed, costly.source), (false, Source::DenyCache));
    assert_eq!(costly.retry_after, Some(Duration::from_millis(500)));
    let hopeless = limiter.check_n("key", 11).await.unwrap();
    assert_eq!((hopeless.allowed, hopeless.retry_after), (false, None));
    assert!(limiter.check_n("key", 2).await.unwrap().allowed);
    assert_eq!(limiter.peek("key").await.unwrap().source, Source::Backend);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_forgotten_after_a_second() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = limiter(&wan, Policy::new("hour", Quota::per_hour(1)));
    assert!(limiter.check("key").await.unwrap().allowed);
    assert_eq!(limiter.check("key").await.unwrap().source, Source::Backend);
    advance(Duration::from_millis(999)).await;
    assert_eq!(
        limiter.check("key").await.unwrap().source,
        Source::DenyCache
    );
    advance(Duration::from_millis(1)).await;
    for source in [Source::Backend, Source::DenyCache] {
        assert_eq!(limiter.check("key").await.unwrap().source, source);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refund_and_a_reset_apply_immediately() {
    let wan = Wan::away(AWAY);
    let limiter = limiter(&wan, two());
    use_up(&limiter).await;
    limiter.refund("key", 1).await.unwrap();
    assert!(limiter.check("key").await.unwrap().allowed);
    assert!(!limiter.check("key").await.unwrap().allowed);
    limiter.reset("key").await.unwrap();
    use_up(&limiter).await;
}

/// The refund may have arrived already, so no earlier rejection applies.
#[tokio::test(start_paused = true)]
async fn refunded_tokens_are_available_before_the_refund_is_confirmed() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = limiter(&wan, two());
    use_up(&limiter).await;
    wan.is_off(Duration::ZERO, 2 * AWAY);
    let refund = limiter.refund("key", 1);
    let meanwhile = async {
        sleep(AWAY).await;
        wan.is_away(Duration::ZERO);
        assert!(limiter.check("key").await.unwrap().allowed);
    };
    futures_util::future::join(refund, meanwhile)
        .await
        .0
        .unwrap();
}

/// The request is sent after the refund and decided before the refund arrives.
#[tokio::test(start_paused = true)]
async fn a_rejection_that_a_refund_overtakes_is_not_remembered() {
    let wan = Wan::away(AWAY);
    let limiter = limiter(&wan, two());
    limiter.check("key").await.unwrap();
    limiter.check("key").await.unwrap();
    wan.is_off(2 * AWAY, AWAY);
    let refund = limiter.refund("key", 1);
    let overtaking = async {
        sleep(Duration::from_millis(1)).await;
        wan.is_away(Duration::ZERO);
        assert!(!limiter.check("key").await.unwrap().allowed);
    };
    let (refunded, ()) = futures_util::future::join(refund, overtaking).await;
    refunded.unwrap();
    assert!(limiter.check("key").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_raised_limit_applies_immediately_even_after_it_is_lowered_again() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = limiter(&wan, two().dynamic_quotas());
    let small = limiter.with_quota(Quota::per_second(2));
    let large = limiter.with_quota(Quota::per_second(20));
    use_up(&small).await;
    assert_eq!(small.check("key").await.unwrap().source, Source::DenyCache);
    assert!(large.check("key").await.unwrap().allowed);
    assert_eq!(small.check("key").await.unwrap().source, Source::Backend);
}

/// Windows have no burst. The burst of a dynamic quota does not limit a request in a window.
#[tokio::test(start_paused = true)]
async fn the_limit_of_a_window_does_not_depend_on_the_burst_of_a_quota() {
    let policy = Policy::new("window", Quota::per_minute(9)).fixed_window();
    let limiter = limiter(&Wan::away(Duration::ZERO), policy.dynamic_quotas());
    for burst in [1, 1_000] {
        let limiter = limiter.with_quota(Quota::per_minute(4).burst(burst));
        for allowed in [true, true, false] {
            let decision = limiter.check_n(burst, 2).await.unwrap();
            assert_eq!(decision.allowed, allowed);
        }
        for (cost, passes) in [(2, true), (4, true), (5, false)] {
            let rejected = limiter.check_n(burst, cost).await.unwrap();
            assert_eq!(rejected.source, Source::DenyCache);
            assert_eq!(rejected.retry_after.is_some(), passes, "{cost} of {burst}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn keys_have_rejections_of_their_own_and_a_flood_of_them_only_costs_round_trips() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = limiter(&wan, two());
    use_up(&limiter).await;
    for number in 0..6_000_u64 {
        assert!(limiter.check(number).await.unwrap().allowed);
        if number % 100 == 0 {
            assert!(!limiter.check("key").await.unwrap().allowed);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_number_of_remembered_rejections_is_bounded() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = limiter(&wan, Policy::new("hour", Quota::per_hour(1)));
    for number in 0..8_000_u64 {
        assert!(limiter.check(number).await.unwrap().allowed);
        assert!(!limiter.check(number).await.unwrap().allowed);
    }
    // Newest first: a key that takes a place again evicts a key that the loop has already counted.
    let mut remembered = 0;
    for number in (0..8_000_u64).rev() {
        let decision = limiter.check(number).await.unwrap();
        assert!(!decision.allowed);
        remembered += usize::from(decision.source == Source::DenyCache);
    }
    assert!((3_000..=4_096).contains(&remembered), "{remembered}");
}

/// Fewer tokens remain and the wait is longer, so the backend decides the next rejection.
#[tokio::test(start_paused = true)]
async fn an_allowed_request_of_lower_cost_updates_the_remaining_tokens() {
    let wan = Wan::away(AWAY);
    let limiter = limiter(&wan, Policy::new("ten", Quota::per_hour(10)));
    for left in (1..10).rev() {
        assert!(limiter.check("key").await.unwrap().allowed);
        for source in [Source::Backend, Source::DenyCache] {
            let rejected = limiter.check_n("key", 10).await.unwrap();
            assert!(!rejected.allowed);
            assert_eq!((rejected.remaining, rejected.source), (left, source));
        }
    }
    limiter.charge("key", 1).await.unwrap();
    assert_eq!(limiter.check_n("key", 10).await.unwrap().remaining, 0);
}

#[tokio::test(start_paused = true)]
async fn without_the_deny_cache_the_backend_decides_every_rejection() {
    let wan = Wan::away(Duration::ZERO);
    let builder = Limiter::builder(wan.clone(), two()).deny_cache(false);
    let limiter = builder.build().unwrap();
    use_up(&limiter).await;
    assert_eq!(limiter.check("key").await.unwrap().source, Source::Backend);
    let limiter = Limiter::new(Memory::default(), two()).unwrap();
    use_up(&limiter).await;
    assert_eq!(limiter.check("key").await.unwrap().source, Source::Backend);
}

mod exactness {
    use proptest::prelude::*;

    use super::*;

    async fn ask_both(costs: Vec<(u64, u64)>, away: (u64, u64)) {
        let (cached, plain) = (Wan::away(Duration::ZERO), Wan::away(Duration::ZERO));
        let [there, back] = [away.0, away.1].map(Duration::from_millis);
        cached.is_off(there, back);
        plain.is_off(there, back);
        let policy = || Policy::new("both", Quota::per_second(20).burst(10));
        let timeout = Duration::from_secs(1);
        let ours = Limiter::builder(cached, policy()).backend_timeout(timeout);
        let plain = Limiter::builder(plain, policy()).backend_timeout(timeout);
        let (ours, plain) = (
            ours.build().unwrap(),
            plain.deny_cache(false).build().unwrap(),
        );
        for (cost, pause) in costs {
            let asked = Instant::now();
            let (one, other) =
                futures_util::future::join(ours.check_n("key", cost), plain.check_n("key", cost))
                    .await;
            let (one, other) = (one.unwrap(), other.unwrap());
            // Requests that are not sent take no time.
            sleep_until(asked + there + back).await;
            assert_eq!(one.allowed, other.allowed, "{one:?} {other:?}");
            sleep(Duration::from_millis(pause)).await;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn the_backend_would_reject_every_request_that_the_deny_cache_rejects(
            costs in prop::collection::vec((1_u64..=11, 0_u64..200), 1..60),
            away in (0_u64..50, 0_u64..200),
        ) {
            tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap()
                .block_on(ask_both(costs, away));
        }
    }
}
