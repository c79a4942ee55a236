//! A rolling deployment: instances with old and with new policies share a server.

use std::time::Duration;

use tests::servers::Redis as Server;
use tower_dist_ratelimit::{Policy, Quota};

use crate::support::{Set, connect};

const HOUR: Duration = Duration::from_secs(3600);

/// One policy of each algorithm.
fn every(quota: Quota) -> Vec<Policy> {
    vec![
        Policy::new("bucket", quota),
        Policy::new("leaky bucket", quota).leaky_bucket(),
        Policy::new("dynamic", quota).dynamic_quotas(),
        Policy::new("queue", quota).leaky_queue(HOUR),
        Policy::new("fixed", quota).fixed_window(),
        Policy::new("phase", quota).fixed_window_staggered(),
        Policy::new("first", quota).fixed_window_from_first_request(),
        Policy::new("two", quota).sliding_window(),
        Policy::new("sub", quota).sliding_window_buckets(4),
        Policy::new("whole", quota).sliding_window_strict(4),
        Policy::new("log", quota).sliding_window_log(),
    ]
}

/// The number of admitted requests when old and new instances take turns.
async fn admitted(old: &Set, new: &Set) -> u64 {
    let mut admitted = 0;
    for number in 0..160 {
        let set = if number % 2 == 0 { old } else { new };
        admitted += u64::from(set.one("k").await.unwrap().allowed);
    }
    admitted
}

#[tokio::test]
async fn while_a_quota_changes_old_and_new_instances_together_admit_at_most_both_quotas() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    for (one, other) in [
        // The tokens of these quotas end at different fractions of a microsecond.
        (Quota::new(7, HOUR), Quota::new(60, HOUR)),
        (Quota::new(30, HOUR), Quota::new(33, HOUR)),
        (Quota::new(7, HOUR), Quota::new(7, HOUR / 60)),
        (Quota::new(20, 24 * HOUR), Quota::new(7, HOUR)),
    ] {
        // Twice the limits: a window may end during the test, and a leaky bucket has a queue of the same length.
        let most = 2 * (one.limit() + other.limit()) + 3;
        for (old, new) in [(one, other), (other, one)] {
            for (was, is) in every(old).into_iter().zip(every(new)) {
                let name = is.name().to_owned();
                let (was, is) = (Set::new(&redis, &[was]), Set::new(&redis, &[is]));
                let admitted = admitted(&was, &is).await;
                assert!(
                    admitted <= most,
                    "{name}, from {old:?} to {new:?}: {admitted} of at most {most}"
                );
            }
            server.call(&["FLUSHALL"]);
        }
    }
}

#[tokio::test]
async fn a_window_of_another_length_starts_anew() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    let windows = |quota| {
        let windowed = every(quota).into_iter().skip(4).take(6);
        windowed.map(|policy| Set::new(&redis, &[policy]))
    };
    let shorter = windows(Quota::new(6, HOUR / 60));
    for (was, is) in windows(Quota::new(60, 24 * HOUR)).zip(shorter) {
        assert!(was.acquire("k", 60).await.unwrap().allowed);
        // Otherwise a client that used sixty of its old daily limit would be rejected until the window ends.
        assert!(is.acquire("k", 1).await.unwrap().allowed);
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
        policy().sliding_window_log(),
    ]
}

#[tokio::test]
async fn a_policy_of_another_algorithm_starts_with_an_empty_count() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    for dynamic in [false, true] {
        let policies = every_algorithm().into_iter().zip(1..);
        for (policy, number) in policies {
            let policy = if dynamic {
                policy.dynamic_quotas()
            } else {
                policy
            };
            let set = Set::new(&redis, &[policy]);
            let verdict = set.acquire("k", 10).await.unwrap();
            let decision = verdict.decisions[0];
            assert!(decision.allowed && decision.delay.is_zero(), "{number}");
            assert_eq!(server.keys().len(), number);
        }
        server.call(&["FLUSHALL"]);
    }
}
