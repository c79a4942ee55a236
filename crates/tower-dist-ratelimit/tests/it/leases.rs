//! Leased tokens: charged in advance and spent locally.

mod asking;
mod bound;
mod keys;
mod returning;
mod shortage;

use std::time::Duration;

use tokio::time::{Instant, advance, sleep};
use tower_dist_ratelimit::{
    Consistency, Decision, FailureMode, Limiter, LimiterBuilder, Policy, Quota, Source,
};

use crate::wan::Wan;

const LEASE: Duration = Duration::from_secs(1);

/// One-way delay.
const AWAY: Duration = Duration::from_millis(10);

fn plenty() -> Policy {
    Policy::new("plenty", Quota::per_second(10_000))
}

fn leasing(wan: &Wan, policy: Policy) -> LimiterBuilder {
    Limiter::builder(wan.clone(), policy)
        .consistency(Consistency::leased_for(LEASE))
        .failure_mode(FailureMode::Closed)
}

/// The decision on the next of requests that arrive every 10 ms.
async fn next(limiter: &Limiter) -> Decision {
    sleep(AWAY).await;
    limiter.check("hot").await.unwrap()
}

/// Sends requests, and waits for the answers to their refills.
async fn warm_up(limiter: &Limiter, requests: usize) {
    for _ in 0..requests {
        next(limiter).await;
    }
    sleep(3 * AWAY).await;
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_is_decided_immediately_with_few_round_trips() {
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
async fn with_fewer_requests_the_next_lease_still_arrives_before_the_last_ends() {
    let wan = Wan::away(AWAY);
    let builder = leasing(&wan, plenty()).backend_timeout(LEASE);
    let limiter = builder.build().unwrap();
    warm_up(&limiter, 200).await;
    // The round trip takes a tenth of the lease time.
    wan.is_away(5 * AWAY);
    for _ in 0..200 {
        sleep(LEASE / 40).await;
        let decision = limiter.check("hot").await.unwrap();
        assert_eq!(decision.source, Source::Lease);
    }
}

#[tokio::test(start_paused = true)]
async fn leases_are_off_by_default() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = Limiter::new(wan.clone(), plenty()).unwrap();
    for _ in 0..100 {
        assert_eq!(next(&limiter).await.source, Source::Backend);
    }
    assert_eq!(wan.trips(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_lease_time_counts_from_the_refill_request_and_not_from_its_answer() {
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
async fn an_answer_after_the_end_of_the_lease_leases_nothing() {
    let wan = Wan::away(LEASE / 2);
    let limiter = leasing(&wan, plenty())
        .backend_timeout(3 * LEASE)
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
async fn a_lease_is_spent_while_the_circuit_is_open() {
    let wan = Wan::away(AWAY);
    let limiter = leasing(&wan, plenty()).build().unwrap();
    warm_up(&limiter, 100).await;
    wan.is_silent();
    // Requests of another key open the circuit with five failures in a row.
    for _ in 0..5 {
        assert!(limiter.check("other").await.is_err());
    }
    let before = wan.trips();
    let decision = limiter.check("hot").await.unwrap();
    assert_eq!(decision.source, Source::Lease);
    assert_eq!(wan.trips(), before);
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

#[test]
fn a_lease_time_out_of_range_is_not_built() {
    for time in [Duration::from_millis(9), Duration::from_secs(61)] {
        let builder = Limiter::builder(Wan::away(AWAY), plenty());
        let error = builder
            .consistency(Consistency::leased_for(time))
            .build()
            .unwrap_err();
        assert_eq!(error.field(), "consistency");
    }
}

#[tokio::test(start_paused = true)]
async fn remaining_tokens_count_down_by_the_used_tokens_at_every_source() {
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
