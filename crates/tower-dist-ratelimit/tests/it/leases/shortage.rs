//! Refills when the backend has fewer tokens than the limiter wants.

use super::*;

/// Sends a request per millisecond, which exceeds all these quotas.
async fn ask_for_200_ms(limiter: &Limiter) {
    for _ in 0..200 {
        advance(Duration::from_millis(1)).await;
        limiter.check("hot").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn near_the_limit_shares_shrink_to_single_requests() {
    let wan = Wan::away(Duration::ZERO);
    let policy = Policy::new("day", Quota::per_day(400));
    let limiter = leasing(&wan, policy).build().unwrap();
    let mut allowed = 0;
    for _ in 0..2_000 {
        sleep(Duration::from_millis(2)).await;
        allowed += u32::from(limiter.check("hot").await.unwrap().allowed);
    }
    assert_eq!(allowed, 400);
    let asked = wan.asked();
    let wants: Vec<u64> = asked
        .iter()
        .map(|one| one.want)
        .filter(|&want| want > 1)
        .collect();
    let most = *wants.iter().max().unwrap();
    assert!((40..=100).contains(&most), "{wants:?}");
    assert!(wants.last().is_some_and(|&last| last <= 17), "{wants:?}");
    assert!(wan.trips() < 200, "{}", wan.trips());
}

#[tokio::test(start_paused = true)]
async fn a_local_rejection_names_the_end_of_the_pause() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("slow", Quota::per_second(50).burst(10)))
        .deny_cache(false)
        .build()
        .unwrap();
    let mut rejected = None;
    for _ in 0..500 {
        advance(Duration::from_millis(1)).await;
        let decision = limiter.check("hot").await.unwrap();
        if !decision.allowed && decision.source == Source::Lease {
            assert_eq!(decision.remaining, 0);
            rejected = Some(decision);
        }
    }
    let wait = rejected.unwrap().retry_after.unwrap();
    assert!(wait <= LEASE && !wait.is_zero());
    advance(wait).await;
    let before = wan.trips();
    limiter.check("hot").await.unwrap();
    assert_eq!(wan.trips(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_refund_ends_a_pause() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("slow", Quota::per_hour(40)))
        .build()
        .unwrap();
    ask_for_200_ms(&limiter).await;
    assert!(!limiter.check("hot").await.unwrap().allowed);
    limiter.refund("hot", 5).await.unwrap();
    assert!(limiter.check("hot").await.unwrap().allowed);
    limiter.reset("hot").await.unwrap();
    assert!(limiter.check("hot").await.unwrap().allowed);
}

/// The refill was sent before the reset, and its answer arrives while the reset is in flight.
#[tokio::test(start_paused = true)]
async fn a_shortage_that_a_reset_overtakes_is_forgotten() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("slow", Quota::per_hour(40)))
        .deny_cache(false)
        .build()
        .unwrap();
    ask_for_200_ms(&limiter).await;
    // The pause has ended, and the next request goes to the backend.
    advance(LEASE).await;
    wan.is_away(2 * AWAY);
    let reset = limiter.reset("hot");
    let short = async {
        wan.is_away(AWAY);
        let rejected = limiter.check("hot").await.unwrap();
        assert_eq!(
            (rejected.allowed, rejected.source),
            (false, Source::Backend)
        );
    };
    let (reset, ()) = futures_util::future::join(reset, short).await;
    reset.unwrap();
    assert!(limiter.check("hot").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_the_pause_of_every_quota_of_the_key() {
    let wan = Wan::away(Duration::ZERO);
    let policy = Policy::new("slow", Quota::per_hour(10)).dynamic_quotas();
    let limiter = leasing(&wan, policy).build().unwrap();
    let own = limiter.with_quota(Quota::per_hour(40));
    ask_for_200_ms(&own).await;
    assert_eq!(own.check("hot").await.unwrap().source, Source::Lease);
    limiter.reset("hot").await.unwrap();
    assert!(own.check("hot").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_request_above_the_remaining_tokens_blocks_no_cheaper_request() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("hour", Quota::per_hour(1_000)))
        .build()
        .unwrap();
    warm_up(&limiter, 30).await;
    let costly = limiter.check_n("hot", 990).await.unwrap();
    assert!(!costly.allowed);
    // The lease is used up, and far more tokens remain in the backend.
    for _ in 0..600 {
        assert!(limiter.check("hot").await.unwrap().allowed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_local_rejection_names_no_shorter_wait_than_the_backend_did() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("day", Quota::per_day(40)).fixed_window())
        .build()
        .unwrap();
    let mut told = Vec::new();
    for _ in 0..500 {
        advance(Duration::from_millis(1)).await;
        let decision = limiter.check("hot").await.unwrap();
        if !decision.allowed {
            told.push((
                decision.source,
                Instant::now() + decision.retry_after.unwrap(),
            ));
        }
    }
    assert!(told.iter().any(|one| one.0 == Source::Lease));
    let due = told[0].1;
    assert!(told.iter().all(|one| one.1 == due), "{:?}", told[1]);
}

/// The refund may have arrived already, so no earlier rejection applies.
#[tokio::test(start_paused = true)]
async fn refunded_tokens_are_available_before_the_refund_is_confirmed() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("slow", Quota::per_hour(40)));
    let limiter = limiter.build().unwrap();
    ask_for_200_ms(&limiter).await;
    wan.is_off(Duration::ZERO, 2 * AWAY);
    let refund = limiter.refund("hot", 5);
    let meanwhile = async {
        sleep(AWAY).await;
        wan.is_away(Duration::ZERO);
        assert!(limiter.check("hot").await.unwrap().allowed);
    };
    futures_util::future::join(refund, meanwhile)
        .await
        .0
        .unwrap();
}

/// A refill was sent before the refund, and its empty grant arrives afterwards.
#[tokio::test(start_paused = true)]
async fn a_shortage_from_before_a_refund_starts_no_pause_after_it() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("slow", Quota::per_hour(40)));
    let limiter = limiter.deny_cache(false).build().unwrap();
    ask_for_200_ms(&limiter).await;
    // The pause has ended, and the next request goes to the backend.
    advance(LEASE).await;
    wan.is_off(Duration::ZERO, 3 * AWAY);
    let short = limiter.check("hot");
    let refund = async {
        sleep(AWAY).await;
        wan.is_away(Duration::ZERO);
        limiter.refund("hot", 5).await.unwrap();
    };
    let (short, ()) = futures_util::future::join(short, refund).await;
    assert!(!short.unwrap().allowed);
    assert!(limiter.check("hot").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn after_a_refund_there_are_pauses_again() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("slow", Quota::per_hour(40)));
    let limiter = limiter.deny_cache(false).build().unwrap();
    let ask = || async {
        let before = wan.trips();
        for _ in 0..300 {
            advance(Duration::from_millis(1)).await;
            limiter.check("hot").await.unwrap();
        }
        wan.trips() - before
    };
    ask().await;
    limiter.refund("hot", 5).await.unwrap();
    let trips = ask().await;
    assert!(trips <= 20, "{trips}");
}

#[tokio::test(start_paused = true)]
async fn after_a_reset_leases_start_immediately() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("slow", Quota::per_hour(400)));
    let limiter = limiter.deny_cache(false).build().unwrap();
    for _ in 0..1_000 {
        advance(Duration::from_millis(1)).await;
        limiter.check("hot").await.unwrap();
    }
    assert!(!limiter.check("hot").await.unwrap().allowed);
    limiter.reset("hot").await.unwrap();
    // The backend decides the first request, which brings a lease.
    for source in [Source::Backend, Source::Lease] {
        let decision = limiter.check("hot").await.unwrap();
        assert_eq!((decision.allowed, decision.source), (true, source));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_after_the_wait_of_a_backend_rejection_reaches_the_backend() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("slow", Quota::per_second(50).burst(64)));
    let limiter = limiter.deny_cache(false).build().unwrap();
    let mut rounds = 0;
    for _ in 0..2_000 {
        advance(Duration::from_millis(1)).await;
        let decision = limiter.check("hot").await.unwrap();
        if decision.allowed || decision.source != Source::Backend {
            continue;
        }
        rounds += 1;
        advance(decision.retry_after.unwrap()).await;
        let before = wan.trips();
        limiter.check("hot").await.unwrap();
        assert_eq!(wan.trips(), before + 1);
    }
    assert!(rounds >= 3, "{rounds}");
}

/// The refill was sent after the refund and decided before the refund arrived.
#[tokio::test(start_paused = true)]
async fn a_shortage_that_a_refund_overtakes_is_forgotten() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("slow", Quota::per_hour(40)));
    let limiter = limiter.deny_cache(false).build().unwrap();
    ask_for_200_ms(&limiter).await;
    // The pause has ended, and the next request goes to the backend.
    advance(LEASE).await;
    wan.is_off(2 * AWAY, AWAY);
    let refund = limiter.refund("hot", 5);
    let short = async {
        wan.is_away(AWAY / 2);
        assert!(!limiter.check("hot").await.unwrap().allowed);
    };
    let (refund, ()) = futures_util::future::join(refund, short).await;
    refund.unwrap();
    assert!(limiter.check("hot").await.unwrap().allowed);
}

/// However long the backend's own wait was.
#[tokio::test(start_paused = true)]
async fn refunds_of_another_instance_are_found_after_a_lease_time() {
    let wan = Wan::away(Duration::ZERO);
    let day = || Policy::new("day", Quota::per_day(40));
    let limiter = leasing(&wan, day()).deny_cache(false).build().unwrap();
    ask_for_200_ms(&limiter).await;
    let rejected = limiter.check("hot").await.unwrap();
    assert_eq!((rejected.allowed, rejected.source), (false, Source::Lease));
    let other = Limiter::new(wan.clone(), day()).unwrap();
    other.reset("hot").await.unwrap();
    advance(LEASE).await;
    assert!(limiter.check("hot").await.unwrap().allowed);
}
