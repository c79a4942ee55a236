//! A rolling deployment: instances with old and with new policies share a server.

use std::time::Duration;

use tests::servers::Memcached as Server;
use tower_dist_ratelimit::{Policy, Quota};

use crate::support::{HOUR, Set, away_from_boundaries, connect};

/// A policy of each kind of window. The last one is stored with compare-and-swap, because the server counts whole
/// seconds.
fn windows(quota: Quota) -> Vec<Policy> {
    let odd = Quota::new(quota.limit(), quota.window() + Duration::from_millis(1));
    vec![
        Policy::new("first", quota).fixed_window_from_first_request(),
        Policy::new("fixed", quota).fixed_window(),
        Policy::new("phase", quota).fixed_window_staggered(),
        Policy::new("two", quota).sliding_window(),
        Policy::new("sub", quota).sliding_window_buckets(4),
        Policy::new("whole", quota).sliding_window_strict(4),
        Policy::new("swapped", odd).fixed_window_from_first_request(),
    ]
}

/// Otherwise a client that used sixty of its old daily limit would be rejected until the window ends.
#[tokio::test]
async fn a_window_of_another_length_starts_anew_alone_and_in_a_set() {
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let (long, short) = (Quota::new(60, 24 * HOUR), Quota::new(6, HOUR / 60));
    let alone = windows(long).into_iter().zip(windows(short));
    let sets = alone.map(|(was, is)| (vec![was], vec![is]));
    for (was, is) in sets.chain([(windows(long), windows(short))]) {
        let [was, is] = [was, is].map(|policies| Set::new(&memcached, &policies));
        assert!(was.acquire("k", 60).await.unwrap().allowed);
        assert!(!was.acquire("k", 1).await.unwrap().allowed);
        assert!(is.acquire("k", 1).await.unwrap().allowed);
    }
}

#[tokio::test]
async fn a_limit_that_changes_is_that_of_the_same_count() {
    away_from_boundaries().await;
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let of = |limit| windows(Quota::new(limit, HOUR));
    for (was, is) in of(20).into_iter().zip(of(30)) {
        let name = is.name().to_owned();
        let [was, is] = [was, is].map(|policy| Set::new(&memcached, &[policy]));
        assert!(was.acquire("k", 15).await.unwrap().allowed);
        assert_eq!(is.look("k").await.remaining, 15, "{name}");
        assert!(is.acquire("k", 15).await.unwrap().allowed);
        // The count is above the old limit: no tokens remain, and no number wraps around.
        assert_eq!(was.look("k").await.remaining, 0, "{name}");
        assert!(!was.acquire("k", 1).await.unwrap().allowed);
    }
}

/// The same policy with each algorithm.
fn every_algorithm() -> Vec<Policy> {
    let policy = || Policy::new("p", Quota::new(10, HOUR));
    vec![
        policy(),
        policy().leaky_bucket(),
        policy().leaky_queue(2 * HOUR),
        policy().fixed_window(),
        policy().fixed_window_staggered(),
        policy().fixed_window_from_first_request(),
        policy().sliding_window(),
        policy().sliding_window_buckets(2),
        policy().sliding_window_buckets(4),
        policy().sliding_window_strict(2),
        policy().sliding_window_strict(4),
    ]
}

#[tokio::test]
async fn a_policy_of_another_algorithm_starts_with_an_empty_count() {
    away_from_boundaries().await;
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let beside = || Policy::new("other", Quota::new(1_000, HOUR));
    let alone = every_algorithm().into_iter().map(|policy| vec![policy]);
    let sets = every_algorithm()
        .into_iter()
        .map(|policy| vec![policy, beside()]);
    for (policies, number) in alone.chain(sets).zip(1..) {
        let set = Set::new(&memcached, &policies);
        let verdict = set.acquire("k", 10).await.unwrap();
        let decision = verdict.decisions[0];
        assert!(decision.allowed && decision.delay.is_zero(), "{number}");
    }
}
