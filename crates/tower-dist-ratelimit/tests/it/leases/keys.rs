//! Keys that have a lease, and their policies.

use futures_util::FutureExt;
use tower_dist_ratelimit::backend::Memory;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_key_with_few_requests_is_not_leased() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    for _ in 0..100 {
        advance(LEASE / 10).await;
        let decision = limiter.check("cold").await.unwrap();
        assert_eq!(decision.source, Source::Backend);
    }
    assert!(wan.asked().iter().all(|asked| asked.want == asked.cost));
    assert_eq!(wan.trips(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_keys_does_not_evict_a_hot_key() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    let mut leased = 0;
    for round in 0..200_u64 {
        for flood in 0..100 {
            limiter.check(round * 100 + flood).await.unwrap();
        }
        let decision = next(&limiter).await;
        leased += u32::from(decision.source == Source::Lease);
    }
    assert!(leased > 150, "{leased}");
}

#[tokio::test(start_paused = true)]
async fn the_backend_decides_queues_peeks_and_impossible_costs() {
    let wan = Wan::away(Duration::ZERO);
    let queue = Policy::new("queue", Quota::per_second(1_000)).leaky_queue(LEASE);
    let limiter = leasing(&wan, queue).build().unwrap();
    for _ in 0..100 {
        assert_eq!(next(&limiter).await.source, Source::Backend);
    }
    let limiter = leasing(&wan, plenty()).build().unwrap();
    warm_up(&limiter, 100).await;
    assert_eq!(limiter.peek("hot").await.unwrap().source, Source::Backend);
    let hopeless = limiter.check_n("hot", 10_001).await.unwrap();
    assert_eq!(
        (hopeless.source, hopeless.retry_after),
        (Source::Backend, None)
    );
}

/// Some of these keys share a set of slots with the hot key.
#[tokio::test(start_paused = true)]
async fn no_request_spends_the_lease_of_another_key() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    warm_up(&limiter, 100).await;
    for number in 0..2_000_u64 {
        let decision = limiter.check(number).await.unwrap();
        assert_eq!(
            (decision.source, decision.remaining),
            (Source::Backend, 9_999)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_spends_the_lease_of_another_quota() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, plenty().dynamic_quotas()).build().unwrap();
    warm_up(&limiter, 100).await;
    assert_eq!(next(&limiter).await.source, Source::Lease);
    let small = limiter.with_quota(Quota::per_second(20));
    let decision = small.check("hot").await.unwrap();
    assert_eq!((decision.source, decision.limit), (Source::Backend, 20));
    assert_eq!(next(&limiter).await.source, Source::Lease);
}

#[tokio::test(start_paused = true)]
async fn a_few_concurrent_requests_make_no_key_hot() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    for _ in 0..6 {
        advance(Duration::from_millis(1)).await;
        limiter.check("warm").await.unwrap();
    }
    assert!(wan.asked().iter().all(|asked| asked.want == asked.cost));
}

#[tokio::test(start_paused = true)]
async fn impossible_costs_keep_no_key_from_its_lease() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    warm_up(&limiter, 100).await;
    let mut leased = 0;
    for number in 0..300 {
        if number % 10 == 0 {
            let hopeless = limiter.check_n("hot", 10_001).await.unwrap();
            assert!(!hopeless.allowed && hopeless.retry_after.is_none());
            assert_ne!(hopeless.source, Source::Lease);
        }
        leased += u32::from(next(&limiter).await.source == Source::Lease);
    }
    assert!(leased >= 290, "{leased}");
}

#[tokio::test(start_paused = true)]
async fn a_key_with_its_own_quota_leases_by_that_quota() {
    let wan = Wan::away(Duration::ZERO);
    let policy = Policy::new("few", Quota::per_second(3)).dynamic_quotas();
    let limiter = leasing(&wan, policy).build().unwrap();
    let own = limiter.with_quota(Quota::per_second(10_000));
    warm_up(&own, 100).await;
    let decision = own.check_n("hot", 5).await.unwrap();
    assert_eq!((decision.source, decision.granted), (Source::Lease, 5));
    assert!(decision.remaining > 9_000, "{decision:?}");
}

#[tokio::test(start_paused = true)]
async fn remaining_tokens_of_a_window_do_not_depend_on_the_burst_of_a_quota() {
    let wan = Wan::away(Duration::ZERO);
    let policy = Policy::new("day", Quota::per_day(10))
        .fixed_window()
        .dynamic_quotas();
    let limiter = leasing(&wan, policy).build().unwrap();
    let own = limiter.with_quota(Quota::per_day(10_000).burst(20));
    warm_up(&own, 100).await;
    let decision = own.check_n("hot", 30).await.unwrap();
    assert_eq!(decision.source, Source::Lease);
    assert_eq!(decision.remaining, 10_000 - 130);
}

#[test]
fn outside_a_runtime_every_request_is_decided_exactly() {
    let limiter = Limiter::builder(Memory::default(), plenty());
    let limiter = limiter.consistency(Consistency::leased()).build().unwrap();
    for _ in 0..200 {
        let decision = limiter.check("hot").now_or_never().unwrap().unwrap();
        assert_eq!(decision.source, Source::Backend);
    }
}

#[test]
fn a_request_whose_refill_ended_with_its_runtime_gets_an_error() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap()
    };
    let (first, other) = (runtime(), runtime());
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    let mut waits = Box::pin(limiter.check_n("hot", 9_000));
    first.block_on(async {
        warm_up(&limiter, 100).await;
        wan.is_silent();
        assert!(waits.as_mut().now_or_never().is_none());
    });
    drop(first);
    let error = other.block_on(waits).unwrap_err().to_string();
    assert_eq!(
        error,
        "the rate limit's backend did not decide: lease refill lost: runtime shut down"
    );
}
