//! Bursts and debts that are too large to count.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_burst_that_is_too_large_to_count_is_cut_to_the_largest_count() {
    const MOST: u64 = 1 << 61;
    let policy = || Policy::new("p", Quota::per_second(1)).dynamic_quotas();
    for policy in [policy(), policy().leaky_queue(Duration::from_secs(1))] {
        let limiter = Limiter::new(Memory::default(), policy).unwrap();
        let huge = limiter.with_quota(Quota::per_second(1).burst(u64::MAX));
        let rejected = huge.check_n("a", MOST + 1).await.unwrap();
        assert_eq!((rejected.allowed, rejected.retry_after), (false, None));
        assert!(huge.check_n("a", MOST).await.unwrap().allowed);
        assert!(!huge.check("a").await.unwrap().allowed);
    }
}

#[tokio::test(start_paused = true)]
async fn debts_of_any_size_never_turn_into_tokens() {
    for policy in all(Quota::per_second(5)) {
        let algorithm = policy.algorithm();
        let limiter = Limiter::new(Memory::default(), policy).unwrap();
        // The first three make 2^64.
        for debt in [i64::MAX as u64, i64::MAX as u64, 2, u64::MAX, 3] {
            limiter.charge("a", debt).await.unwrap();
            let rejected = limiter.check("a").await.unwrap();
            assert!(!rejected.allowed, "{algorithm:?}");
            assert_eq!(rejected.remaining, 0);
        }
    }
}
