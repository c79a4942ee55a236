use std::time::Duration;

use tests::servers::Memcached as Server;
use tower_dist_ratelimit::{
    Algorithm, Policy, Quota, Source,
    backend::Backend,
    conformance::{Conformance, Sleeping},
};

use crate::support::{HOUR, Set, answered, away_from_boundaries, connect, every, limiter};

const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::LeakyQueue {
        max_wait: Duration::from_secs(1),
    },
    Algorithm::FixedWindow { staggered: false },
    Algorithm::FixedWindowFromFirstRequest,
    Algorithm::SlidingWindow,
    Algorithm::SlidingWindowBuckets { count: 4 },
    Algorithm::SlidingWindowStrict { count: 4 },
    Algorithm::SlidingWindowLog,
];

/// Runs these checks of the kit with a tolerance of `grain` between clocks.
async fn conforms(algorithms: &[Algorithm], checks: &[&str], grain: Duration) {
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    for check in checks {
        let memcached = memcached.clone();
        let kit = Conformance::new(move || memcached.clone(), Sleeping::new(grain));
        let kit = kit.algorithms(algorithms.to_vec()).sequences(8);
        kit.only(check).run().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_backend_conforms() {
    let checks = [
        "building",
        "decisions",
        "nothing written",
        "refunds",
        "reset",
        "keys",
        "racing",
        "all or nothing",
        "dynamic quotas",
    ];
    conforms(&ALGORITHMS, &checks, Duration::from_millis(60)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_conform_by_this_machines_clock() {
    let others = ALGORITHMS
        .into_iter()
        .filter(|one| *one != Algorithm::FixedWindowFromFirstRequest);
    let others: Vec<Algorithm> = others.collect();
    conforms(&others, &["retry", "expiry"], Duration::from_millis(60)).await;
}

/// Memcached's clock ticks once a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_for_a_first_hit_window_conform_by_the_servers_clock() {
    let grain = Duration::from_millis(1100);
    conforms(
        &[Algorithm::FixedWindowFromFirstRequest],
        &["retry", "expiry"],
        grain,
    )
    .await;
}

#[tokio::test]
async fn a_limit_that_memcached_cannot_count_is_rejected_when_it_is_built() {
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let policy = Policy::new("log", Quota::per_hour(4_001)).sliding_window_log();
    let error = memcached.register(&[policy]).unwrap_err();
    assert_eq!((error.field(), error.policy()), ("limit", Some("log")));
    assert_eq!(error.bound(), "at most 4000");
    let policy = Policy::new("p", Quota::per_second(1 << 49)).fixed_window();
    let error = memcached.register(&[policy]).unwrap_err();
    let says = "policy \"p\": limit is 562949953421312, \
                but must be at most 4294967295 in a fixed window of 1s";
    assert_eq!(error.to_string(), says);
    let month = Quota::new(1 << 49, 720 * HOUR);
    let policy = Policy::new("p", month).fixed_window();
    let error = memcached.register(&[policy]).unwrap_err();
    let says = "policy \"p\": limit is 562949953421312, \
                but must be at most 281474976710656 with fixed windows on Memcached";
    assert_eq!(error.to_string(), says);
}

#[tokio::test]
async fn a_rejection_and_a_check_write_nothing_and_every_item_expires() {
    away_from_boundaries().await;
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let mut sets = Set::each(&memcached, every(2));
    sets.push(Set::new(&memcached, &every(2)));
    for set in &sets {
        set.look("looked at").await;
        set.take("looked at", 9).await.unwrap();
    }
    assert_eq!(server.keys(), [""; 0]);
    for set in &sets {
        let left = set.look("k").await.remaining;
        for expected in (0..left).rev() {
            assert_eq!(set.take("k", 1).await.unwrap().remaining, expected);
            // A leaky bucket grants the next free slots.
            if expected == 1 && left == 2 {
                let refused = set.take("k", 2).await.unwrap();
                assert!(!refused.allowed && refused.remaining == 1, "{refused:?}");
            }
        }
        for cost in [1, 2, u64::MAX, 1] {
            let refused = set.take("k", cost).await.unwrap();
            assert!(!refused.allowed && refused.remaining == 0, "{refused:?}");
        }
        set.settle("k", 1, -1).await;
        assert_eq!(set.look("k").await.remaining, 1);
    }
    let lines = server.call("lru_crawler metadump all");
    let ours = lines
        .iter()
        .filter(|line| line.contains("key=rl") && !line.contains("probe"));
    assert_eq!(ours.clone().count(), sets.len());
    for line in ours {
        assert!(!line.contains("exp=-1"), "{line}");
    }
}

#[tokio::test]
async fn several_policies_of_a_client_are_one_item_in_two_round_trips() {
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let set = Set::new(&memcached, &every(100));
    set.acquire("k", 1).await.unwrap();
    assert_eq!(server.keys().len(), 1);
    let before = server.commands();
    let verdict = set.acquire("k", 1).await.unwrap();
    assert_eq!(server.commands() - before, 2);
    let left: Vec<u64> = verdict.decisions.iter().map(|one| one.remaining).collect();
    assert_eq!(left, [98, 98, 98, 199, 98, 98, 98, 98, 98, 98]);
}

#[tokio::test]
async fn a_fixed_window_takes_one_command_and_every_other_algorithm_two() {
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let quota = Quota::new(100, HOUR);
    for (policy, commands) in [
        (
            Policy::new("first", quota).fixed_window_from_first_request(),
            1,
        ),
        (Policy::new("fixed", quota).fixed_window(), 1),
        (Policy::new("bucket", quota), 2),
        (Policy::new("two", quota).sliding_window(), 2),
        (Policy::new("sub", quota).sliding_window_buckets(100), 2),
        (Policy::new("log", quota).sliding_window_log(), 2),
    ] {
        let set = Set::new(&memcached, &[policy]);
        assert!(set.take("k", 3).await.unwrap().allowed);
        let before = server.commands();
        assert!(set.take("k", 3).await.unwrap().allowed);
        assert_eq!(server.commands() - before, commands);
    }
}

#[tokio::test]
async fn policies_with_different_keys_are_charged_together_or_not_at_all() {
    away_from_boundaries().await;
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    for make in [
        |name: &str, limit| Policy::new(name, Quota::new(limit, HOUR)),
        |name: &str, limit| Policy::new(name, Quota::new(limit, HOUR)).fixed_window(),
    ] {
        let set = Set::new(&memcached, &[make("user", 3), make("all", 100)]);
        let keys = ["alice", ""];
        for left in [2, 1, 0] {
            let verdict = answered(set.ask(&keys, 1, 1)).await.unwrap();
            assert!(verdict.allowed && verdict.decisions[0].remaining == left);
            assert_eq!(verdict.decisions[0].source, Source::Backend);
        }
        for _ in 0..5 {
            let verdict = answered(set.ask(&keys, 1, 1)).await.unwrap();
            let [user, all] = [verdict.decisions[0], verdict.decisions[1]];
            assert!(!verdict.allowed && !user.allowed && all.allowed);
            assert_eq!((user.remaining, all.remaining, all.granted), (0, 97, 0));
            assert_eq!(all.source, Source::Parts);
        }
        let verdict = answered(set.ask(&["bob", ""], 1, 1)).await.unwrap();
        assert!(verdict.allowed && verdict.decisions[1].remaining == 96);
    }
}

#[tokio::test]
async fn more_is_granted_than_asked_where_it_is_wanted_and_there() {
    away_from_boundaries().await;
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    for set in Set::each(&memcached, every(10)) {
        let wanted = |want| {
            let set = set.clone();
            async move { answered(set.ask(&["k"], 1, want)).await.unwrap().decisions[0] }
        };
        let full = set.look("k").await.remaining;
        if full > 10 {
            // A leaky bucket grants at most the cost.
            assert_eq!(wanted(4).await.granted, 1);
            continue;
        }
        assert_eq!(
            (wanted(4).await.granted, set.look("k").await.remaining),
            (4, 6)
        );
        assert_eq!(
            (wanted(100).await.granted, set.look("k").await.remaining),
            (6, 0)
        );
        assert_eq!(wanted(100).await.granted, 0);
        set.settle("k", 2, -2).await;
        assert_eq!(
            (wanted(3).await.granted, set.look("k").await.remaining),
            (2, 0)
        );
    }
}

#[tokio::test]
async fn waits_are_exact_by_this_machines_clock() {
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let limiter = limiter(
        &memcached,
        Policy::new("one", Quota::per_second(5).burst(1)),
    );
    for _ in 0..5 {
        assert!(limiter.check("someone").await.unwrap().allowed);
        let refused = limiter.check("someone").await.unwrap();
        if refused.allowed {
            // The machine was too busy for this round.
            continue;
        }
        let wait = refused.retry_after.unwrap();
        assert!(wait <= Duration::from_millis(200));
        tokio::time::sleep(wait).await;
        assert_eq!(limiter.peek("someone").await.unwrap().remaining, 1);
    }
}

#[tokio::test]
async fn garbage_at_a_key_counts_as_unused_and_is_replaced() {
    away_from_boundaries().await;
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let mut sets = Set::each(&memcached, every(100));
    sets.push(Set::new(&memcached, &every(100)));
    let huge = "x".repeat(900_000);
    let texts = [
        "",
        "x",
        "-1",
        "1 2",
        "18446744073709551615",
        "18446744073709551610",
        "9223372036854775808",
        "99999999999999999999999999",
        "\u{a1}",
        &huge,
    ];
    for set in &sets {
        for text in texts {
            let before = server.keys();
            let fresh = set.take("k", 1).await.unwrap();
            let keys: Vec<String> = server.keys();
            let key = keys.iter().find(|key| !before.contains(key)).unwrap();
            server.call(&format!("set {key} 0 3600 {}\r\n{text}", text.len()));
            let healed = set.take("k", 1).await.unwrap();
            // The server parses "1 2" as a number, and counts on from it.
            let numeric = text == "1 2" && healed.remaining < fresh.remaining;
            assert!(
                healed.allowed && (healed.remaining == fresh.remaining || numeric),
                "{:?} at {key}: {healed:?} instead of {fresh:?}",
                &text[..text.len().min(20)]
            );
            let again = set.take("k", 1).await.unwrap();
            assert_eq!(again.remaining, healed.remaining - 1);
            server.call("flush_all");
        }
    }
}

#[tokio::test]
async fn hostile_keys_are_distinct_and_never_written() {
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let set = Set::new(&memcached, &[Policy::new("p} {x", Quota::per_hour(1))]);
    let long = "x".repeat(65_536);
    let keys = ["", " ", "\0", "a\r\nflush_all\r\n", "a b", "a", "é", &long];
    for expected in [true, false] {
        for key in keys {
            assert_eq!(set.take(key, 1).await.unwrap().allowed, expected, "{key:?}");
        }
    }
    let written = server.keys();
    assert_eq!(written.len(), keys.len());
    assert!(
        written
            .iter()
            .all(|key| key.len() < 64 && !key.contains("flush"))
    );
}

#[tokio::test]
async fn windows_of_any_length_are_kept() {
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let day = 24 * HOUR;
    for (number, window) in [
        Duration::from_millis(1),
        Duration::from_millis(1500),
        Duration::from_secs(1),
        30 * day - Duration::from_secs(1),
        30 * day,
        31 * day,
        10 * 365 * day,
        100 * 365 * day,
    ]
    .into_iter()
    .enumerate()
    {
        let quota = Quota::new(1, window);
        for policy in [
            Policy::new(format!("bucket {number}"), quota),
            Policy::new(format!("first {number}"), quota).fixed_window_from_first_request(),
            Policy::new(format!("fixed {number}"), quota).fixed_window(),
            Policy::new(format!("two {number}"), quota).sliding_window(),
        ] {
            let name = policy.name().to_owned();
            let set = Set::new(&memcached, &[policy]);
            assert!(set.take("k", 1).await.unwrap().allowed, "{name}");
            if window >= HOUR {
                let refused = set.take("k", 1).await.unwrap();
                assert!(!refused.allowed, "{name}: {refused:?}");
                assert!(
                    refused.retry_after.unwrap() <= 2 * window,
                    "{name}: {refused:?}"
                );
            } else {
                tokio::time::sleep(2 * window + Duration::from_millis(5)).await;
                if !name.starts_with("first") {
                    assert!(set.take("k", 1).await.unwrap().allowed, "{name}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_quota_without_a_burst_rejects_with_every_algorithm() {
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let policy = |name| Policy::new(name, Quota::per_hour(9)).dynamic_quotas();
    for policy in [
        policy("bucket"),
        policy("queue").leaky_queue(Duration::from_secs(1)),
        policy("fixed").fixed_window(),
        policy("first").fixed_window_from_first_request(),
        policy("two").sliding_window(),
    ] {
        let limiter = limiter(&memcached, policy);
        let nothing = limiter.with_quota(Quota::per_second(5).burst(0));
        let rejected = nothing.check("k").await.unwrap();
        assert_eq!(
            (rejected.allowed, rejected.retry_after),
            (false, None),
            "{limiter:?}"
        );
    }
}
