//! Who asks for more, and how often.

use tokio::time::sleep_until;

use super::*;

#[tokio::test(start_paused = true)]
async fn one_asks_for_a_lease_however_many_need_it() {
    let wan = Wan::away(AWAY);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    let asks = (0..1_000).map(|_| limiter.check("hot"));
    futures_util::future::join_all(asks).await;
    let leases = wan.asked().iter().filter(|one| one.want > one.cost).count();
    assert_eq!(leases, 1);
    // From now on nobody waits, and one question is on its way at a time.
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

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_asks_leaves_the_asking_to_others() {
    let wan = Wan::away(AWAY);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    loop {
        sleep(AWAY).await;
        let mut ask = Box::pin(limiter.check("hot"));
        assert!(futures_util::FutureExt::now_or_never(&mut ask).is_none());
        if wan.asked().last().is_some_and(|one| one.want > one.cost) {
            break;
        }
        ask.await.unwrap();
    }
    // But not at once: its tokens may have been debited.
    limiter.check("hot").await.unwrap();
    assert!(wan.asked().last().is_some_and(|one| one.want == one.cost));
    sleep(LEASE / 8).await;
    warm_up(&limiter, 16).await;
    assert_eq!(next(&limiter).await.source, Source::Lease);
}

#[tokio::test(start_paused = true)]
async fn what_asks_in_the_background_ends_with_the_last_handle() {
    let wan = Wan::away(AWAY);
    let limiter = leasing(&wan, plenty())
        .backend_deadline(Duration::from_secs(60))
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
    // One that travels, for ever, and one that waits for it.
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

/// Whoever finds no tokens while one asks is decided alone; and when the store goes on being short, is refused.
#[tokio::test(start_paused = true)]
async fn many_who_are_refused_at_once_cost_few_round_trips() {
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
    // Of 50 a second.
    assert!((140..=150).contains(&allowed), "{allowed}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_silent_is_asked_for_more_only_now_and_then() {
    let wan = Wan::away(AWAY);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    // Ten requests a millisecond, so that there is a lot to spend.
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
    // The deadline and an eighth of the lease time apart.
    let trips = wan.trips() - before;
    assert!((1..=4).contains(&trips), "{trips}");
}

/// What is left may be less than a request costs.
#[tokio::test(start_paused = true)]
async fn who_asks_ahead_takes_whatever_is_there() {
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
