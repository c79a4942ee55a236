//! Eventual consistency: instances exchange their counts afterwards.

use std::{cell::Cell, time::Duration};

use tests::servers::Memcached as Server;
use tokio::time::{Instant, sleep};
use tower_dist_ratelimit::{Consistency, FailureMode, Limiter, Policy, Quota, Source};

use crate::support::{HOUR, away_from_boundaries, connect, limiter, until};

const PERIOD: Duration = Duration::from_millis(50);
const LIMIT: u64 = 400;
const INSTANCES: usize = 3;

/// Policies that do not refill during a test.
const POLICIES: [fn() -> Policy; 4] = [
    || Policy::new("bucket", Quota::new(LIMIT, 10_000 * HOUR)),
    || Policy::new("fixed", Quota::new(LIMIT, HOUR)).fixed_window(),
    || Policy::new("first", Quota::new(LIMIT, HOUR)).fixed_window_from_first_request(),
    || Policy::new("whole", Quota::new(LIMIT, HOUR)).sliding_window_strict(4),
];

/// One instance of a fleet.
async fn instance(server: &Server, policy: Policy) -> Limiter {
    let builder = Limiter::builder(connect(&server.url()).await, policy);
    builder
        .consistency(Consistency::Eventual(PERIOD))
        .failure_mode(FailureMode::Closed)
        .build()
        .unwrap()
}

async fn takes(limiter: &Limiter, times: u64) -> u64 {
    let mut taken = 0;
    for _ in 0..times {
        let decision = limiter.check("k").await.unwrap();
        assert_eq!(decision.source, Source::Eventual);
        taken += decision.granted;
    }
    taken
}

#[tokio::test]
async fn all_instances_learn_the_count_of_the_backend_which_is_the_used_tokens() {
    away_from_boundaries().await;
    let server = Server::start();
    for policy in POLICIES {
        let exact = limiter(&connect(&server.url()).await, policy());
        let mut fleet = Vec::new();
        for _ in 0..INSTANCES {
            fleet.push(instance(&server, policy()).await);
        }
        let mut used = 0;
        for round in 1..=5 {
            for limiter in &fleet {
                used += takes(limiter, 5 * round).await;
            }
            sleep(PERIOD / 2).await;
        }
        assert!(used < LIMIT);
        until("all to agree", || async {
            let mut left = vec![exact.peek("k").await.unwrap().remaining];
            for limiter in &fleet {
                left.push(limiter.peek("k").await.unwrap().remaining);
            }
            let agree = left.iter().all(|&left| left == LIMIT - used);
            agree.then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_fleet_admits_at_most_the_limit_from_each_instance_and_then_nothing() {
    away_from_boundaries().await;
    let server = Server::start();
    for policy in POLICIES {
        let name = policy().name().to_owned();
        let mut fleet = Vec::new();
        for _ in 0..INSTANCES {
            fleet.push(instance(&server, policy()).await);
        }
        let (mut used, end) = (0, Instant::now() + 20 * PERIOD);
        while Instant::now() < end {
            for limiter in &fleet {
                used += takes(limiter, 20).await;
            }
            sleep(PERIOD / 10).await;
        }
        println!("{name}: {used} of {LIMIT}");
        assert!(used >= LIMIT, "{name}: {used}");
        assert!(used <= LIMIT * 3, "{name}: {used}");
        for limiter in &fleet {
            assert_eq!(takes(limiter, 1).await, 0, "{name}");
        }
    }
}

#[tokio::test]
async fn a_killed_server_stops_no_request_and_receives_the_later_counts_after_its_return() {
    let mut server = Server::start();
    let [bucket, ..] = POLICIES;
    let limiter = instance(&server, bucket()).await;
    assert_eq!(takes(&limiter, 10).await, 10);
    sleep(3 * PERIOD).await;
    server.kill();
    for _ in 0..10 {
        assert_eq!(takes(&limiter, 5).await, 5);
        sleep(PERIOD / 2).await;
    }
    server.restart();
    let exact = crate::support::limiter(&connect(&server.url()).await, bucket());
    // A report sent during the outage is lost or counted once, so the count never exceeds the use.
    let used = Cell::new(60);
    let counted = until("it to hear", || async {
        used.set(used.get() + takes(&limiter, 1).await);
        sleep(PERIOD).await;
        let left = exact.peek("k").await.unwrap().remaining;
        (left < LIMIT).then_some(LIMIT - left)
    })
    .await;
    let used = used.get();
    assert!(counted <= used, "{counted} of {used}");
}
