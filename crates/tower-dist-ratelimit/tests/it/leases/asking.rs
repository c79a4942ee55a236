//! Refills: when a limiter sends them, and how often.

use tokio::time::sleep_until;

use super::*;

#[tokio::test(start_paused = true)]
async fn one_refill_serves_all_concurrent_requests() {
    let wan = Wan::away(AWAY);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    let asks = (0..1_000).map(|_| limiter.check("hot"));
    futures_util::future::join_all(asks).await;
    let leases = wan.asked().iter().filter(|one| one.want > one.cost).count();
    assert_eq!(leases, 1);
    // From now on no request waits, and one refill at a time is in flight.
    let before = wan.trips();
    for _ in 0..200 {
        sleep(Duration::from_millis(1)).await;
        let asks = (0..4).map(|_| limiter.check("hot"));
        futures_util::future::join_all(asks).await;
    }
    let asked = wan.asked();
    let ahead: Vec<_> = asked[before..]
        .iter()
        .filter(|one| one.want > one.cost)
        .collect();
    for two in ahead.windows(2) {
        assert!(two[1].at >= two[0].at + 2 * AWAY);
    }
}

/// Polls a request once and drops it. Returns whether it sent a refill for more than its cost.
fn cancel_one(wan: &Wan, limiter: &Limiter) -> bool {
    let before = wan.trips();
    let _ = futures_util::FutureExt::now_or_never(limiter.check("hot"));
    wan.asked()[before..].iter().any(|one| one.want > one.cost)
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_during_its_refill_leaves_the_grant_to_others() {
    let wan = Wan::away(AWAY);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    loop {
        sleep(3 * AWAY).await;
        if cancel_one(&wan, &limiter) {
            break;
        }
    }
    // While the refill is in flight, the backend decides the other requests one by one.
    assert_eq!(limiter.check("hot").await.unwrap().source, Source::Backend);
    let before = wan.trips();
    assert_eq!(next(&limiter).await.source, Source::Lease);
    assert_eq!(wan.trips(), before);
}

#[tokio::test(start_paused = true)]
async fn cancelled_requests_waste_no_grants() {
    let wan = Wan::away(AWAY);
    let policy = || Policy::new("day", Quota::per_day(1_000));
    let limiter = leasing(&wan, policy()).build().unwrap();
    let mut refills = 0;
    for _ in 0..300 {
        sleep(AWAY).await;
        refills += u32::from(cancel_one(&wan, &limiter));
    }
    assert!(refills > 0);
    sleep(3 * AWAY).await;
    limiter.return_leases().await.unwrap();
    let exact = Limiter::new(wan.clone(), policy()).unwrap();
    let remaining = exact.peek("hot").await.unwrap().remaining;
    // Each request took one token. One token fewer returns, because the bucket may have gained it since.
    assert!((698..=700).contains(&remaining), "{remaining}");
}

#[tokio::test(start_paused = true)]
async fn background_refills_end_with_the_last_handle() {
    let wan = Wan::away(AWAY);
    let limiter = leasing(&wan, plenty())
        .backend_timeout(Duration::from_secs(60))
        .build()
        .unwrap();
    warm_up(&limiter, 100).await;
    wan.is_silent();
    for _ in 0..60 {
        next(&limiter).await;
        if tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
            > 1
        {
            break;
        }
    }
    // One refill is in flight for ever, and one waits for it.
    let alive = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    assert_eq!(alive(), 2);
    drop(limiter);
    tokio::task::yield_now().await;
    assert_eq!(alive(), 1);
}

/// The backend decides a request that finds no tokens during a refill. While the shortage lasts, requests are rejected
/// locally.
#[tokio::test(start_paused = true)]
async fn many_concurrent_rejections_cost_few_round_trips() {
    let wan = Wan::away(AWAY);
    let policy = Policy::new("slow", Quota::per_second(50).burst(64));
    let limiter = leasing(&wan, policy).deny_cache(false).build().unwrap();
    let crowd = || async {
        let asks = (0..20).map(|_| limiter.check("hot"));
        futures_util::future::join_all(asks).await
    };
    let (mut before, mut allowed) = (0, 0);
    for number in 0..150 {
        if number == 50 {
            (before, allowed) = (wan.trips(), 0);
        }
        let next = Instant::now() + 3 * AWAY;
        let all = crowd().await;
        let all = all.into_iter().map(Result::unwrap);
        allowed += all.filter(|one| one.allowed).count();
        sleep_until(next).await;
    }
    let trips = wan.trips() - before;
    assert!(trips <= 200, "{trips} for 2,000 requests");
    // The limit is 50 per second.
    assert!((140..=150).contains(&allowed), "{allowed}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_backend_receives_few_refills() {
    let wan = Wan::away(AWAY);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    // Ten requests per millisecond, to lease many tokens.
    for _ in 0..600 {
        sleep(Duration::from_millis(1)).await;
        futures_util::future::join_all((0..10).map(|_| limiter.check("hot"))).await;
    }
    wan.is_silent();
    let before = wan.trips();
    for _ in 0..500 {
        sleep(Duration::from_millis(1)).await;
        let decision = limiter.check("hot").await.unwrap();
        assert_eq!(decision.source, Source::Lease);
    }
    // Refills are the timeout plus an eighth of the lease time apart.
    let trips = wan.trips() - before;
    assert!((1..=4).contains(&trips), "{trips}");
}

/// The remaining tokens may be fewer than a request costs.
#[tokio::test(start_paused = true)]
async fn a_refill_ahead_of_time_takes_the_available_tokens() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    for _ in 0..100 {
        sleep(AWAY).await;
        let before = wan.trips();
        let decision = limiter.check_n("hot", 10).await.unwrap();
        let exact = decision.source == Source::Backend;
        let costs = wan.asked()[before..].iter().map(|one| one.cost).max();
        assert_eq!(costs.unwrap_or(1), if exact { 10 } else { 1 });
    }
    let ahead = wan.asked().iter().filter(|one| one.cost == 1).count();
    assert!(ahead > 1, "{ahead}");
}
