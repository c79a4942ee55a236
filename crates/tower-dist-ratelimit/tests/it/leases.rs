//! Tokens that are paid for in advance.

mod bound;

use std::time::Duration;

use tokio::time::{Instant, advance, sleep};
use tower_dist_ratelimit::{
    Decision, Limiter, LimiterBuilder, OnError, Policy, Quota, Sharing, Source,
};

use crate::wan::Wan;

const LEASE: Duration = Duration::from_secs(1);

/// One way.
const AWAY: Duration = Duration::from_millis(10);

fn plenty() -> Policy {
    Policy::new("plenty", Quota::per_second(10_000))
}

fn leasing(wan: &Wan, policy: Policy) -> LimiterBuilder {
    Limiter::builder(wan.clone(), policy)
        .sharing(Sharing::leases_of(LEASE))
        .on_backend_error(OnError::Deny)
}

/// What the next of requests that come every 10 ms is told.
async fn next(limiter: &Limiter) -> Decision {
    sleep(AWAY).await;
    limiter.check("hot").await.unwrap()
}

/// Sends requests, and waits for the answers to all that was asked for in advance.
async fn warm_up(limiter: &Limiter, requests: usize) {
    for _ in 0..requests {
        next(limiter).await;
    }
    sleep(3 * AWAY).await;
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_is_answered_at_once_and_seldom_asked_for() {
    let wan = Wan::away(AWAY);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    warm_up(&limiter, 100).await;
    let before = wan.trips();
    for _ in 0..500 {
        sleep(AWAY).await;
        let asked = Instant::now();
        let decision = limiter.check("hot").await.unwrap();
        assert_eq!((decision.source, decision.granted), (Source::Lease, 1));
        assert!(asked.elapsed().is_zero());
        assert!(decision.allowed && decision.limit == 10_000 && decision.remaining > 9_000);
    }
    let trips = wan.trips() - before;
    assert!((5..=25).contains(&trips), "{trips}");
}

#[tokio::test(start_paused = true)]
async fn when_there_are_fewer_requests_the_next_lease_still_comes_before_the_last_one_ends() {
    let wan = Wan::away(AWAY);
    let builder = leasing(&wan, plenty()).backend_deadline(LEASE);
    let limiter = builder.build().unwrap();
    warm_up(&limiter, 200).await;
    // A tenth of the lease time, there and back.
    wan.is_away(5 * AWAY);
    for _ in 0..200 {
        sleep(LEASE / 40).await;
        let decision = limiter.check("hot").await.unwrap();
        assert_eq!(decision.source, Source::Lease);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_seldom_asked_about_is_not_leased() {
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
async fn leases_are_off_unless_asked_for() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = Limiter::new(wan.clone(), plenty()).unwrap();
    for _ in 0..100 {
        assert_eq!(next(&limiter).await.source, Source::Backend);
    }
    assert_eq!(wan.trips(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_that_long_after_it_was_asked_for_and_not_after_the_answer() {
    let wan = Wan::away(AWAY);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    warm_up(&limiter, 16).await;
    let asked = *wan.asked().last().unwrap();
    assert!(asked.want > asked.cost);
    wan.is_silent();
    tokio::time::sleep_until(asked.at + LEASE - Duration::from_millis(1)).await;
    let decision = limiter.check("hot").await.unwrap();
    assert_eq!(decision.source, Source::Lease);
    advance(Duration::from_millis(1)).await;
    assert!(limiter.check("hot").await.is_err(), "the lease has ended");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_lease_has_ended_leases_nothing() {
    let wan = Wan::away(LEASE / 2);
    let limiter = leasing(&wan, plenty())
        .backend_deadline(3 * LEASE)
        .build()
        .unwrap();
    for _ in 0..3 {
        let asks = (0..20).map(|_| limiter.check("hot"));
        for decision in futures_util::future::join_all(asks).await {
            assert_eq!(decision.unwrap().source, Source::Backend);
        }
    }
}

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
    sleep(LEASE / 8).await;
    warm_up(&limiter, 16).await;
    assert_eq!(next(&limiter).await.source, Source::Lease);
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
async fn a_refusal_here_says_when_the_store_is_asked_again_and_then_it_is() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("slow", Quota::per_second(50).burst(10)))
        .deny_cache(false)
        .build()
        .unwrap();
    let mut refused = None;
    for _ in 0..500 {
        advance(Duration::from_millis(1)).await;
        let decision = limiter.check("hot").await.unwrap();
        if !decision.allowed && decision.source == Source::Lease {
            assert_eq!(decision.remaining, 0);
            refused = Some(decision);
        }
    }
    let wait = refused.unwrap().retry_after.unwrap();
    assert!(wait <= LEASE && !wait.is_zero());
    advance(wait).await;
    let before = wan.trips();
    limiter.check("hot").await.unwrap();
    assert_eq!(wan.trips(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_put_back_ends_a_pause() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("slow", Quota::per_hour(40)))
        .build()
        .unwrap();
    for _ in 0..200 {
        advance(Duration::from_millis(1)).await;
        limiter.check("hot").await.unwrap();
    }
    assert!(!limiter.check("hot").await.unwrap().allowed);
    limiter.refund("hot", 5).await.unwrap();
    assert!(limiter.check("hot").await.unwrap().allowed);
    limiter.reset("hot").await.unwrap();
    assert!(limiter.check("hot").await.unwrap().allowed);
}

/// It was asked before the reset was sent, and its answer arrives while that travels.
#[tokio::test(start_paused = true)]
async fn a_shortage_that_a_reset_overtakes_is_forgotten() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("slow", Quota::per_hour(40)))
        .deny_cache(false)
        .build()
        .unwrap();
    for _ in 0..200 {
        advance(Duration::from_millis(1)).await;
        limiter.check("hot").await.unwrap();
    }
    // The pause is over, and the next request asks.
    advance(LEASE).await;
    wan.is_away(2 * AWAY);
    let reset = limiter.reset("hot");
    let short = async {
        wan.is_away(AWAY);
        let refused = limiter.check("hot").await.unwrap();
        assert_eq!((refused.allowed, refused.source), (false, Source::Backend));
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
    for _ in 0..200 {
        advance(Duration::from_millis(1)).await;
        own.check("hot").await.unwrap();
    }
    assert_eq!(own.check("hot").await.unwrap().source, Source::Lease);
    limiter.reset("hot").await.unwrap();
    assert!(own.check("hot").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_request_too_costly_for_what_is_left_keeps_no_cheaper_one_from_it() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("hour", Quota::per_hour(1_000)))
        .build()
        .unwrap();
    warm_up(&limiter, 30).await;
    let costly = limiter.check_n("hot", 990).await.unwrap();
    assert!(!costly.allowed);
    // Whatever is leased is used up, and much more than that is left.
    for _ in 0..600 {
        assert!(limiter.check("hot").await.unwrap().allowed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_here_names_no_shorter_wait_than_the_store_did() {
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

#[tokio::test(start_paused = true)]
async fn a_lease_is_spent_while_the_store_is_left_alone() {
    let wan = Wan::away(AWAY);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    warm_up(&limiter, 100).await;
    wan.is_silent();
    // Another key's requests find out, five in a row.
    for _ in 0..5 {
        assert!(limiter.check("other").await.is_err());
    }
    let before = wan.trips();
    let decision = limiter.check("hot").await.unwrap();
    assert_eq!(decision.source, Source::Lease);
    assert_eq!(wan.trips(), before);
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

#[tokio::test(start_paused = true)]
async fn costs_are_paid_in_full_from_a_lease() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("day", Quota::per_day(1_000)))
        .build()
        .unwrap();
    let mut paid = 0;
    for number in 0..4_000_u64 {
        advance(Duration::from_millis(2)).await;
        let cost = 1 + number % 3;
        let decision = limiter.check_n("hot", cost).await.unwrap();
        if decision.allowed {
            assert_eq!(decision.granted, cost);
            paid += cost;
        }
    }
    assert!((980..=1_000).contains(&paid), "{paid}");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_keys_does_not_push_out_a_hot_one() {
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
async fn queues_looks_and_hopeless_costs_are_the_store_s() {
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

#[test]
fn a_lease_time_out_of_range_is_not_built() {
    for time in [Duration::from_millis(9), Duration::from_secs(61)] {
        let builder = Limiter::builder(Wan::away(AWAY), plenty());
        let error = builder
            .sharing(Sharing::leases_of(time))
            .build()
            .unwrap_err();
        assert_eq!(error.field(), "sharing");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_lease_is_given_back_and_others_find_it() {
    let wan = Wan::away(AWAY);
    let day = || Policy::new("day", Quota::per_day(1_000));
    let limiter = leasing(&wan, day()).build().unwrap();
    warm_up(&limiter, 60).await;
    let other = leasing(&wan, day()).build().unwrap();
    let before = other.peek("hot").await.unwrap().remaining;
    limiter.return_leases().await.unwrap();
    let after = other.peek("hot").await.unwrap().remaining;
    // But for one, which the bucket could have gained meanwhile.
    assert!(before < 939 && after == 939, "{before} and then {after}");
    // They are dead here: the next request asks, and loses another one.
    assert_eq!(next(&limiter).await.source, Source::Backend);
    limiter.return_leases().await.unwrap();
    assert_eq!(other.peek("hot").await.unwrap().remaining, 937);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_given_back_after_the_lease_nor_of_windows_nor_to_a_store_that_is_left_alone() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("day", Quota::per_day(1_000)));
    let limiter = limiter.build().unwrap();
    warm_up(&limiter, 60).await;
    let before = limiter.peek("hot").await.unwrap().remaining;
    advance(2 * LEASE).await;
    limiter.return_leases().await.unwrap();
    assert_eq!(limiter.peek("hot").await.unwrap().remaining, before);
    let window = leasing(
        &wan,
        Policy::new("window", Quota::per_day(1_000)).fixed_window(),
    );
    let window = window.build().unwrap();
    warm_up(&window, 60).await;
    let before = window.peek("hot").await.unwrap().remaining;
    window.return_leases().await.unwrap();
    assert_eq!(window.peek("hot").await.unwrap().remaining, before);
    warm_up(&limiter, 60).await;
    wan.is_silent();
    for _ in 0..5 {
        assert!(limiter.check("other").await.is_err());
    }
    assert!(limiter.return_leases().await.is_err());
    assert_eq!(limiter.check("hot").await.unwrap().source, Source::Lease);
}

#[tokio::test(start_paused = true)]
async fn what_remains_counts_down_by_what_is_used_whoever_decides() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("day", Quota::per_day(1_000)))
        .build()
        .unwrap();
    let mut leased = 0;
    for number in 1..=1_000 {
        sleep(Duration::from_millis(1)).await;
        let decision = limiter.check("hot").await.unwrap();
        leased += u32::from(decision.source == Source::Lease);
        assert!(decision.allowed, "{number}");
        assert_eq!(decision.remaining, 1_000 - number, "{decision:?}");
    }
    assert!(leased > 700, "{leased}");
    assert!(!limiter.check("hot").await.unwrap().allowed);
}
