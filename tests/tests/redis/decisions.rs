use std::time::Duration;

use tests::servers::{Redis as Server, Reply};
use tower_dist_ratelimit::{
    Policy, Quota,
    backend::{Backend, Charge},
    conformance::{Conformance, Sleeping},
};
use tower_dist_ratelimit_redis::Redis;

use crate::support::{Set, answered, calls, connect, limiter};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_backend_conforms() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    let grain = Duration::from_millis(2);
    let kit = Conformance::new(move || redis.clone(), Sleeping::new(grain)).sequences(8);
    kit.run().await.unwrap();
}

#[tokio::test]
async fn waits_are_exact_by_the_servers_clock() {
    let server = Server::start();
    let limiter = limiter(
        &connect(&server.url()).await,
        Policy::new("one", Quota::per_second(5).burst(1)),
    );
    for _ in 0..5 {
        let first = limiter.check("someone").await.unwrap();
        assert!(first.allowed);
        let refused = limiter.check("someone").await.unwrap();
        let wait = refused.retry_after.unwrap();
        assert!(!refused.allowed && wait <= Duration::from_millis(200));
        tokio::time::sleep(wait.saturating_sub(Duration::from_millis(60))).await;
        // A sleep can take longer than requested, so the test reads the remaining wait.
        let still = limiter.peek("someone").await.unwrap();
        assert!(still.remaining == 1 || still.reset_after <= Duration::from_millis(60));
        tokio::time::sleep(still.reset_after).await;
    }
}

#[tokio::test]
async fn a_rejection_and_a_check_write_nothing_and_every_key_expires() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    let policies = |n: u64| {
        let quota = Quota::per_hour(n);
        vec![
            Policy::new("bucket", quota),
            Policy::new("queue", quota).leaky_queue(Duration::from_secs(7200)),
            Policy::new("fixed", quota).fixed_window(),
            Policy::new("phase", quota).fixed_window_staggered(),
            Policy::new("first", quota).fixed_window_from_first_request(),
            Policy::new("two", quota).sliding_window(),
            Policy::new("sub", quota).sliding_window_buckets(4),
            Policy::new("whole", quota).sliding_window_strict(4),
            Policy::new("log", quota).sliding_window_log(),
        ]
    };
    let set = Set::new(&redis, &policies(2));
    assert!(set.acquire("looks", 0).await.unwrap().allowed);
    assert!(!set.acquire("asks for too much", 3).await.unwrap().allowed);
    assert_eq!(server.keys(), Vec::<String>::new());

    assert!(set.acquire("pays", 2).await.unwrap().allowed);
    let keys = server.keys();
    assert_eq!(keys.len(), 9, "{keys:?}");
    let state = |key: &String| server.call(&["DUMP", key]);
    let before: Vec<Reply> = keys.iter().map(state).collect();
    assert!(!set.acquire("pays", 1).await.unwrap().allowed);
    assert!(set.acquire("pays", 0).await.unwrap().allowed);
    assert_eq!(keys.iter().map(state).collect::<Vec<_>>(), before);
    for key in &keys {
        let Reply::Int(ttl) = server.call(&["PTTL", key]) else {
            panic!()
        };
        assert!((1..=2 * 3_600_000 + 3).contains(&ttl), "{key}: {ttl}");
    }
}

#[tokio::test]
async fn every_command_that_writes_a_key_sets_its_expiry() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    // The first quota's tokens are complete at whole microseconds; the second quota's are not.
    let quotas = [Quota::per_hour(1_000), Quota::per_minute(77)];
    for (number, quota) in quotas.into_iter().enumerate() {
        let policy = |name: &str| Policy::new(format!("{name} {number}"), quota);
        let all = [
            policy("bucket"),
            policy("dynamic").dynamic_quotas(),
            policy("leaky").leaky_bucket(),
            policy("queue").leaky_queue(Duration::from_secs(600)),
            policy("fixed").fixed_window(),
            policy("phase").fixed_window_staggered(),
            policy("first").fixed_window_from_first_request(),
            policy("two").sliding_window(),
            policy("sub").sliding_window_buckets(4),
            policy("whole").sliding_window_strict(4),
            policy("log").sliding_window_log(),
        ];
        // A policy alone and a set of policies have different scripts.
        for policies in all.chunks(1).chain([&all[..]]) {
            let set = Set::new(&redis, policies);
            // Different keys, because one set would set an expiry on the other's keys.
            let who = |what: &str| format!("{what}, of {}", policies.len());
            let row = who("some in a row");
            let one = || set.acquire(&row, 1);
            let (first, second, third, fourth) = tokio::join!(one(), one(), one(), one());
            for verdict in [first, second, third, fourth] {
                assert!(verdict.unwrap().allowed);
            }
            set.acquire(&who("pays"), 1).await.unwrap();
            set.acquire(&who("gets some back"), 3).await.unwrap();
            set.settle(&who("gets some back"), 3, -1).await.unwrap();
            set.acquire(&who("owes"), 2).await.unwrap();
            set.settle(&who("owes"), 1, 20).await.unwrap();
            set.settle(&who("owes from the start"), 1, 1).await.unwrap();
        }
    }
    let keys = server.keys();
    assert_eq!(keys.len(), 2 * 2 * 11 * 5, "{keys:?}");
    for key in &keys {
        let Reply::Int(ttl) = server.call(&["PTTL", key]) else {
            panic!()
        };
        assert!(ttl > 0, "{key}: {ttl}");
    }
}

#[tokio::test]
async fn corrections_and_resets_reach_the_store() {
    let server = Server::start();
    let limiter = limiter(
        &connect(&server.url()).await,
        Policy::new("mails", Quota::per_hour(10)),
    );
    assert_eq!(limiter.check("k").await.unwrap().remaining, 9);
    limiter.refund("k", 1).await.unwrap();
    assert_eq!(limiter.peek("k").await.unwrap().remaining, 10);
    limiter.check("k").await.unwrap();
    limiter.reset("k").await.unwrap();
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn services_with_other_prefixes_do_not_meet() {
    let server = Server::start();
    let policy = || Policy::new("same", Quota::per_hour(1));
    let (mut one, mut other) = (Redis::builder(&server.url()), Redis::builder(&server.url()));
    one = one.prefix("one");
    other = other.prefix("other");
    let one = limiter(&one.connect().await.unwrap(), policy());
    let other = limiter(&other.connect().await.unwrap(), policy());
    assert!(one.check("k").await.unwrap().allowed);
    assert!(other.check("k").await.unwrap().allowed);
    assert!(!one.check("k").await.unwrap().allowed);
    let keys = server.keys();
    assert!(keys.len() == 2 && keys[0].starts_with("one:") && keys[1].starts_with("other:"));
}

#[tokio::test]
async fn hostile_keys_are_distinct_and_never_written() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    let id = redis
        .register(&[Policy::new("p}{x", Quota::per_hour(1))])
        .unwrap()[0];
    let long = vec![b'x'; 65_536];
    let keys: [&[u8]; 8] = [
        b"",
        b"{",
        b"}",
        b"{a}",
        b"{b}",
        b"\0",
        b"a\r\nFLUSHALL\r\n",
        &long,
    ];
    for expected in [true, false] {
        for key in keys {
            let charge = [Charge::new(id, key, 1)];
            let verdict = answered(redis.acquire(&charge, &mut [Default::default()]))
                .await
                .unwrap();
            assert_eq!(verdict.allowed, expected, "{key:?}");
        }
    }
    assert_eq!(server.keys().len(), 8);
    assert!(server.keys().iter().all(|key| key.len() < 64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_go_out_together_and_a_dropped_one_disturbs_no_other() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    let set = std::sync::Arc::new(Set::new(
        &redis,
        &[Policy::new("p", Quota::per_hour(100_000))],
    ));
    set.one("warm").await.unwrap();
    let before = calls(&server);
    let tasks: Vec<_> = (0..2000)
        .map(|number| {
            let set = std::sync::Arc::clone(&set);
            tokio::spawn(async move { set.one("hot").await.unwrap().allowed || number > 2000 })
        })
        .collect();
    let mut dropped = 0;
    let mut admitted = 0;
    for (number, task) in tasks.into_iter().enumerate() {
        if number % 3 == 0 {
            task.abort();
            dropped += 1;
        } else {
            assert!(task.await.unwrap());
            admitted += 1;
        }
    }
    let used = 100_000 - set.acquire("hot", 0).await.unwrap().decisions[0].remaining;
    assert!((admitted..=admitted + dropped).contains(&used), "{used}");
    let sent = calls(&server) - before;
    assert!(sent < 700, "{sent} calls for 2000 requests");
}

#[tokio::test]
async fn the_connection_ends_with_the_last_handle() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    let clients = || server.call(&["CLIENT", "LIST"]).text().lines().count();
    let with = clients();
    let limiter = limiter(&redis, Policy::new("p", Quota::per_hour(5)));
    drop(redis);
    assert!(limiter.check("k").await.unwrap().allowed);
    drop(limiter);
    crate::support::until("the connection to end", || async {
        (clients() < with).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_phase_of_a_key_depends_on_its_hash_and_not_on_the_name_of_the_policy() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    let ends = async |policy: Policy| {
        let set = Set::new(&redis, &[policy.fixed_window_staggered()]);
        let mut ends = Vec::new();
        for key in ["a", "b", "c"] {
            let reset = set.one(key).await.unwrap().reset_after;
            ends.push(reset.as_secs() / 60);
        }
        ends
    };
    let day = Quota::per_day(5);
    let expected = ends(Policy::new("no digits", day)).await;
    assert!(expected[0].abs_diff(expected[1]) > 10, "{expected:?}");
    // Each of these names can be read as a hexadecimal number.
    for name in ["a", "42", "fee", "cafe", "v1:add", "v1:deadbeef", "{beef"] {
        for policy in [
            Policy::new(name, day),
            Policy::new(name, day).colocate("place"),
        ] {
            let ends = ends(policy).await;
            let same = ends.iter().zip(&expected).all(|(a, b)| a.abs_diff(*b) <= 1);
            assert!(same, "{name}: {ends:?}, not {expected:?}");
        }
    }
}
