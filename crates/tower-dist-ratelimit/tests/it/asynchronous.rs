//! `Consistency::Eventual`: counts that instances exchange afterwards.

use std::time::Duration;

use tokio::time::{Instant, advance, sleep};
use tower_dist_ratelimit::{Consistency, Limiter, Policy, Quota, Source};

use crate::wan::Wan;

const PERIOD: Duration = Duration::from_millis(100);

fn sharing(wan: &Wan) -> Limiter {
    let policy = Policy::new("shared", Quota::per_second(100).burst(20));
    let builder = Limiter::builder(wan.clone(), policy);
    builder
        .consistency(Consistency::Eventual(PERIOD))
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_for_the_backend() {
    let wan = Wan::away(Duration::from_millis(20));
    let limiter = sharing(&wan);
    for _ in 0..100 {
        sleep(Duration::from_millis(3)).await;
        let asked = Instant::now();
        let decision = limiter.check("key").await.unwrap();
        assert_eq!(decision.source, Source::Eventual);
        assert!(asked.elapsed().is_zero());
    }
    // One at first, one within the first 100 ms, and then one per period.
    assert!((2..=5).contains(&wan.trips()), "{}", wan.trips());
}

#[tokio::test(start_paused = true)]
async fn other_instances_count_used_tokens_after_an_exchange() {
    let wan = Wan::away(Duration::ZERO);
    let (one, other) = (sharing(&wan), sharing(&wan));
    for _ in 0..20 {
        assert!(one.check("key").await.unwrap().allowed);
    }
    assert!(!one.check("key").await.unwrap().allowed);
    // The other instance has not received that count.
    assert!(other.check_n("key", 20).await.unwrap().allowed);
    // Together they used 40 of 20 tokens. Both instances carry the debt.
    sleep(2 * PERIOD).await;
    for limiter in [&one, &other] {
        let rejected = limiter.check_n("key", 5).await.unwrap();
        assert!(!rejected.allowed, "{rejected:?}");
    }
    sleep(Duration::from_millis(400)).await;
    assert!(one.check_n("key", 5).await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn an_idle_key_costs_no_round_trips() {
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

/// Threads with a runtime each start and end independently.
#[test]
fn the_next_runtime_takes_over_a_key_whose_runtime_has_ended() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let (shared, exact) = runtime().block_on(async {
        let (shared, exact) = hour(&Wan::away(Duration::ZERO));
        take(&shared, 5).await;
        sleep(Duration::from_millis(1)).await;
        // This exchange ends with the runtime.
        take(&shared, 1).await;
        (shared, exact)
    });
    runtime().block_on(async {
        take(&shared, 3).await;
        sleep(3 * PERIOD).await;
        assert_eq!(exact.peek("key").await.unwrap().remaining, 100 - 5 - 3);
    });
}

#[tokio::test(start_paused = true)]
async fn a_silent_backend_blocks_no_request() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = sharing(&wan);
    wan.is_silent();
    for _ in 0..100 {
        advance(Duration::from_millis(20)).await;
        assert!(limiter.check("key").await.unwrap().allowed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_and_a_refund_apply_locally_and_immediately() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = sharing(&wan);
    assert!(limiter.check_n("key", 20).await.unwrap().allowed);
    limiter.refund("key", 3).await.unwrap();
    assert!(limiter.check_n("key", 3).await.unwrap().allowed);
    // The backend has not received the charge yet.
    wan.is_away(PERIOD / 5);
    let reset = limiter.reset("key");
    let meanwhile = async { limiter.check_n("key", 20).await.unwrap().allowed };
    let (reset, allowed) = futures_util::future::join(reset, meanwhile).await;
    reset.unwrap();
    assert!(allowed);
}

#[tokio::test(start_paused = true)]
async fn a_raised_limit_applies_from_the_next_exchange() {
    let wan = Wan::away(Duration::ZERO);
    let policy = Policy::new("shared", Quota::per_second(10)).dynamic_quotas();
    let limiter = Limiter::builder(wan.clone(), policy)
        .consistency(Consistency::Eventual(PERIOD))
        .build()
        .unwrap();
    let small = limiter.with_quota(Quota::per_second(10));
    for _ in 0..10 {
        sleep(Duration::from_millis(20)).await;
        small.check("key").await.unwrap();
    }
    // Constant requests for the key keep its exchange running.
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
    for (length, source) in [(900, Source::Eventual), (1_100, Source::Backend)] {
        let decision = limiter.check("k".repeat(length)).await.unwrap();
        assert_eq!(decision.source, source, "{length}");
    }
}

/// An eventual limiter, and an exact limiter that reads the backend's count.
fn hour(wan: &Wan) -> (Limiter, Limiter) {
    let policy = || Policy::new("hour", Quota::new(100, 10_000 * Duration::from_secs(3600)));
    let shared = Limiter::builder(wan.clone(), policy()).consistency(Consistency::Eventual(PERIOD));
    let exact = Limiter::builder(wan.clone(), policy()).deny_cache(false);
    (shared.build().unwrap(), exact.build().unwrap())
}

async fn take(limiter: &Limiter, times: u64) {
    for _ in 0..times {
        assert!(limiter.check("key").await.unwrap().allowed);
    }
}

#[tokio::test(start_paused = true)]
async fn counts_that_could_not_be_sent_are_sent_later() {
    let wan = Wan::away(Duration::ZERO);
    let (shared, exact) = hour(&wan);
    wan.is_shut();
    for _ in 0..6 {
        take(&shared, 5).await;
        sleep(PERIOD).await;
    }
    wan.is_away(Duration::ZERO);
    sleep(3 * PERIOD).await;
    assert_eq!(exact.peek("key").await.unwrap().remaining, 70);
    assert_eq!(shared.peek("key").await.unwrap().remaining, 70);
}

#[tokio::test(start_paused = true)]
async fn counts_that_may_have_arrived_are_not_resent() {
    let wan = Wan::away(Duration::ZERO);
    let (shared, exact) = hour(&wan);
    wan.is_deaf();
    take(&shared, 5).await;
    sleep(2 * PERIOD).await;
    wan.is_away(Duration::ZERO);
    for _ in 0..4 {
        take(&shared, 1).await;
        sleep(PERIOD).await;
    }
    assert_eq!(exact.peek("key").await.unwrap().remaining, 91);
    assert_eq!(shared.peek("key").await.unwrap().remaining, 91);
}

#[tokio::test(start_paused = true)]
async fn an_outage_leaves_no_debt_if_the_limit_was_kept() {
    let second = Duration::from_secs(1);
    for policy in [
        Policy::new("key", Quota::per_second(100).burst(20)),
        Policy::new("key", Quota::new(200, 2 * second)).fixed_window(),
        Policy::new("key", Quota::new(200, 2 * second)).sliding_window(),
    ] {
        let wan = Wan::away(Duration::ZERO);
        let builder = Limiter::builder(wan.clone(), policy);
        let builder = builder.consistency(Consistency::Eventual(PERIOD));
        let limiter = builder.build().unwrap();
        // 80 tokens per second.
        for request in 0..1_600 {
            match request {
                80 => wan.is_shut(),
                880 => wan.is_away(Duration::ZERO),
                _ => {}
            }
            take(&limiter, 1).await;
            sleep(second / 80).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_becomes_idle_during_an_outage_once_its_tokens_are_regained() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = sharing(&wan);
    wan.is_shut();
    let alive = || {
        let metrics = tokio::runtime::Handle::current().metrics();
        metrics.num_alive_tasks()
    };
    take(&limiter, 20).await;
    assert_eq!(alive(), 1);
    sleep(5 * PERIOD).await;
    assert_eq!(alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn tokens_used_during_an_exchange_are_counted_exactly_once() {
    for policy in [
        || Policy::new("key", Quota::new(100, 10_000 * Duration::from_secs(3600))),
        || Policy::new("key", Quota::per_day(100)).fixed_window(),
    ] {
        let wan = Wan::away(PERIOD / 5);
        let limiter = Limiter::builder(wan.clone(), policy());
        let limiter = limiter
            .consistency(Consistency::Eventual(PERIOD))
            .build()
            .unwrap();
        for used in 1..=60 {
            take(&limiter, 1).await;
            let left = limiter.peek("key").await.unwrap().remaining;
            assert_eq!(left, 100 - used);
            sleep(PERIOD / 7).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn corrections_reach_the_backend_once() {
    let wan = Wan::away(Duration::ZERO);
    let (shared, exact) = hour(&wan);
    // None of the 20 tokens was sent. After the refund only 12 are sent.
    take(&shared, 20).await;
    shared.refund("key", 8).await.unwrap();
    sleep(3 * PERIOD).await;
    assert_eq!(exact.peek("key").await.unwrap().remaining, 88);
    // All were sent, and the exchange for the key has ended.
    shared.refund("key", 2).await.unwrap();
    shared.charge("key", 5).await.unwrap();
    assert_eq!(exact.peek("key").await.unwrap().remaining, 85);
    // All were sent, and the exchange continues.
    let goes_on = async || {
        for _ in 0..8 {
            shared.peek("key").await.unwrap();
            sleep(PERIOD / 4).await;
        }
    };
    take(&shared, 1).await;
    goes_on().await;
    shared.refund("key", 4).await.unwrap();
    goes_on().await;
    assert_eq!(exact.peek("key").await.unwrap().remaining, 88);
    shared.charge("key", 5).await.unwrap();
    goes_on().await;
    assert_eq!(exact.peek("key").await.unwrap().remaining, 83);
    shared.reset("key").await.unwrap();
    sleep(3 * PERIOD).await;
    for limiter in [&exact, &shared] {
        assert_eq!(limiter.peek("key").await.unwrap().remaining, 100);
    }
}

#[tokio::test(start_paused = true)]
async fn corrections_of_several_policies_apply_immediately_and_reach_the_backend() {
    let wan = Wan::away(Duration::ZERO);
    let policies = ["a", "b"].map(|name| Policy::new(name, Quota::per_hour(100)));
    let [first, second] = policies.clone();
    let shared = Limiter::builder(wan.clone(), first).limit(second);
    let shared = shared.consistency(Consistency::Eventual(PERIOD));
    let shared = shared.build().unwrap();
    let exact = policies.map(|policy| Limiter::new(wan.clone(), policy).unwrap());

    take(&shared, 1).await;
    sleep(3 * PERIOD).await;
    shared.charge("key", 50).await.unwrap();
    assert_eq!(shared.peek("key").await.unwrap().remaining, 49);
    shared.refund("key", 40).await.unwrap();
    assert_eq!(shared.peek("key").await.unwrap().remaining, 89);
    sleep(3 * PERIOD).await;
    for limiter in [&shared, &exact[0], &exact[1]] {
        assert_eq!(limiter.peek("key").await.unwrap().remaining, 89);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_not_counted_and_a_reset_discards_unsent_counts() {
    let wan = Wan::away(Duration::ZERO);
    let (shared, exact) = hour(&wan);
    take(&shared, 10).await;
    sleep(2 * PERIOD).await;
    assert!(!shared.check_n("key", 91).await.unwrap().allowed);
    sleep(2 * PERIOD).await;
    assert_eq!(exact.peek("key").await.unwrap().remaining, 90);
    take(&shared, 10).await;
    shared.reset("key").await.unwrap();
    sleep(2 * PERIOD).await;
    assert_eq!(exact.peek("key").await.unwrap().remaining, 100);
}

#[tokio::test(start_paused = true)]
async fn instances_that_start_together_do_not_exchange_together() {
    let wan = Wan::away(Duration::ZERO);
    let mut fleet = Vec::new();
    for _ in 0..8 {
        // Created one after the other, as processes are.
        fleet.push(sharing(&wan));
        sleep(Duration::from_millis(7)).await;
    }
    for _ in 0..40 {
        for limiter in &fleet {
            limiter.check("key").await.unwrap();
        }
        sleep(PERIOD / 2).await;
    }
    let asked = wan.asked();
    // Two at first, and then one per period.
    assert!((8 * 19..=8 * 22).contains(&asked.len()), "{}", asked.len());
    let mut times: Vec<_> = asked[8..16].iter().map(|one| one.at).collect();
    times.sort();
    times.dedup();
    assert!(times.len() >= 6, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn keys_beyond_the_capacity_are_decided_exactly() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = sharing(&wan);
    for number in 0..10_000_u64 {
        let decision = limiter.check(number).await.unwrap();
        assert_eq!(decision.source, Source::Eventual);
    }
    assert_eq!(
        limiter.check(10_001_u64).await.unwrap().source,
        Source::Backend
    );
    assert_eq!(limiter.check(1_u64).await.unwrap().source, Source::Eventual);
}
