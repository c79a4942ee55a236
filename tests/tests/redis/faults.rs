use std::time::Duration;

use tests::servers::{Redis as Server, Reply};
use tokio::time::Instant;
use tower_dist_ratelimit::{Policy, Quota};
use tower_dist_ratelimit_redis::Redis;

use crate::support::{Set, behind_a_proxy, connect, fails_fast, policy, until};

const HOUR: Duration = Duration::from_secs(3600);

/// One policy of each algorithm, with this limit per hour.
fn every(limit: u64) -> Vec<Policy> {
    let quota = Quota::new(limit, HOUR);
    vec![
        Policy::new("bucket", quota),
        Policy::new("dynamic", quota).dynamic_quotas(),
        Policy::new("queue", quota).leaky_queue(2 * HOUR),
        Policy::new("fixed", quota).fixed_window(),
        Policy::new("phase", quota).fixed_window_staggered(),
        Policy::new("first", quota).fixed_window_from_first_request(),
        Policy::new("two", quota).sliding_window(),
        Policy::new("sub", quota).sliding_window_buckets(4),
        Policy::new("whole", quota).sliding_window_strict(4),
        Policy::new("log", quota).sliding_window_log(),
    ]
}

/// Waits until the backend decides again.
async fn resumes(set: &Set) {
    until("decisions to resume", || async {
        set.one("again").await.ok()
    })
    .await;
}

#[tokio::test]
async fn scripts_that_are_flushed_are_sent_again() {
    let server = Server::start();
    let set = Set::new(&connect(&server.url()).await, &every(100));
    for left in (90..100).rev() {
        server.call(&["SCRIPT", "FLUSH"]);
        let verdict = set.acquire("k", 1).await.unwrap();
        assert!(verdict.allowed && verdict.decisions[0].remaining == left);
    }
}

#[tokio::test]
async fn a_server_without_memory_charges_nothing_and_recovers() {
    let server = Server::start();
    let set = Set::new(&connect(&server.url()).await, &every(100));
    set.acquire("k", 1).await.unwrap();
    server.call(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = set.acquire("k", 1).await.unwrap_err();
    assert!(error.to_string().contains("OOM"), "{error}");
    assert!(set.acquire("new", 1).await.is_err());
    server.call(&["CONFIG", "SET", "maxmemory", "0"]);
    let left: Vec<u64> = set
        .acquire("k", 0)
        .await
        .unwrap()
        .decisions
        .iter()
        .map(|d| d.remaining)
        .collect();
    assert!(
        left.iter()
            .enumerate()
            .all(|(n, &left)| left == if n == 2 { 200 } else { 99 }),
        "{left:?}"
    );
    assert_eq!(server.keys().len(), 10);
}

#[tokio::test]
async fn garbage_at_a_key_counts_as_unused_and_is_replaced() {
    let server = Server::start();
    let set = Set::new(&connect(&server.url()).await, &every(100));
    set.acquire("k", 1).await.unwrap();
    let fresh = set.acquire("other", 1).await.unwrap();
    // A bucket that is decided alone has a script of its own, for the same keys.
    let alone = Set::new(&connect(&server.url()).await, &every(100)[..1]);
    let keys: Vec<String> = server.keys();
    assert_eq!(keys.len(), 20);
    let texts = [
        "",
        " ",
        "x",
        "nan",
        "inf",
        "-1",
        "1e300",
        "0x10",
        "1 2 3 4 5 6 7",
        "9007199254740993",
        "99999999999999999999999999 1",
        "9000000000000000 5",
        "9000000000000000 1 1",
        "1700000000000000 -5",
        r"\0\1",
    ]
    .map(|text| format!("redis.call('SET', KEYS[1], '{text}')"));
    // Most algorithms store two to four doubles. In half of these values, the first one is valid.
    let mut doubles = Vec::new();
    for number in ["0/0", "1/0", "-1/0", "-1", "0.5", "1e300"] {
        for (first, more) in [
            (number, 1),
            (number, 2),
            (number, 3),
            ("1", 1),
            ("1", 2),
            ("1", 3),
        ] {
            let more = format!("string.rep(struct.pack('<d', {number}), {more})");
            let value = format!("struct.pack('<d', {first}) .. {more}");
            doubles.push(format!("redis.call('SET', KEYS[1], {value})"));
        }
    }
    let others = [
        "redis.call('HSET', KEYS[1], 'f', 'v')",
        "redis.call('RPUSH', KEYS[1], 'x', 'y', 'z')",
        "redis.call('RPUSH', KEYS[1], '1', 'x', '2')",
        "redis.call('SADD', KEYS[1], '1')",
    ]
    .map(String::from);
    for garbage in texts.into_iter().chain(doubles).chain(others) {
        for key in &keys {
            server.call(&["DEL", key]);
            let written = server.call(&["EVAL", &garbage, "1", key]);
            assert_eq!(written, Reply::Nil, "{garbage}");
        }
        let verdict = set.acquire("k", 1).await.unwrap();
        for (healed, fresh) in verdict.decisions.iter().zip(fresh.decisions.iter()) {
            assert_eq!(
                (healed.allowed, healed.remaining),
                (true, fresh.remaining),
                "{garbage}: {verdict:?}"
            );
        }
        let again = set.acquire("k", 1).await.unwrap();
        assert_eq!(again.decisions[0].remaining, 98, "{garbage}");
        for left in [99, 98] {
            let healed = alone.acquire("other", 1).await.unwrap().decisions[0];
            assert_eq!(
                (healed.allowed, healed.remaining),
                (true, left),
                "{garbage}"
            );
        }
        assert_eq!(server.keys(), keys, "{garbage}");
    }
}

#[tokio::test]
async fn a_primary_that_becomes_a_replica_is_not_used_until_it_is_primary_again() {
    let (server, other) = (Server::start(), Server::start());
    let set = Set::new(&connect(&server.url()).await, &policy());
    set.one("k").await.unwrap();
    server.call(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    until("writes to be refused", || async {
        set.one("k").await.err()
    })
    .await;
    fails_fast(&set).await;
    server.call(&["REPLICAOF", "NO", "ONE"]);
    resumes(&set).await;
}

#[tokio::test]
async fn a_primary_that_misses_its_replicas_is_asked_again_until_it_has_them() {
    let server = Server::start();
    let set = Set::new(&connect(&server.url()).await, &policy());
    set.one("k").await.unwrap();
    server.call(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    for _ in 0..3 {
        let error = until("writes to be refused", || async {
            let error = set.one("k").await.err().map(|error| error.to_string());
            error.filter(|error| !error.contains("no connection"))
        })
        .await;
        assert!(error.contains("NOREPLICAS"), "{error}");
        // The next server of this address may have its replicas, so the client reconnects.
        fails_fast(&set).await;
    }
    server.call(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    resumes(&set).await;
}

#[tokio::test]
async fn a_server_that_takes_no_more_connections_is_tried_until_it_does() {
    let server = Server::start();
    let set = Set::new(&connect(&server.url()).await, &policy());
    let mut control = tests::servers::Resp::connect(server.port()).unwrap();
    let mut call = |command: &[&str]| control.call(command).unwrap();
    call(&["CONFIG", "SET", "maxclients", "1"]);
    assert!(
        set.one("k").await.is_ok(),
        "a connection that stands is kept"
    );
    let error = Redis::connect(&server.url()).await.unwrap_err().to_string();
    assert!(
        error.contains("max number of clients") || error.contains("closed the connection"),
        "{error}"
    );
    call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    fails_fast(&set).await;
    call(&["CONFIG", "SET", "maxclients", "100"]);
    resumes(&set).await;
}

#[tokio::test]
async fn a_server_that_was_restarted_empty_counts_from_zero() {
    let mut server = Server::start();
    let set = Set::new(&connect(&server.url()).await, &policy());
    assert_eq!(set.one("k").await.unwrap().remaining, 999);
    server.kill();
    fails_fast(&set).await;
    server.restart();
    resumes(&set).await;
    assert_eq!(set.one("k").await.unwrap().remaining, 999);
}

#[tokio::test]
async fn a_closed_connection_is_noticed_without_a_request() {
    let server = Server::start();
    let set = Set::new(&connect(&server.url()).await, &policy());
    set.one("k").await.unwrap();
    server.call(&["CLIENT", "KILL", "TYPE", "normal"]);
    // The client reconnects before any request fails.
    until("another connection", || async {
        let clients = server.call(&["CLIENT", "LIST"]).text();
        clients.contains("cmd=eval ").then_some(())
    })
    .await;
    // This process has not read the server's last answer yet.
    resumes(&set).await;
}

#[tokio::test]
async fn the_error_while_a_frozen_server_is_connected_to_again_names_the_timeout() {
    let server = Server::start();
    let limit = Duration::from_millis(200);
    let builder = Redis::builder(&server.url()).answer_timeout(limit);
    let redis = builder.connect_timeout(limit).connect().await.unwrap();
    let set = Set::new(&redis, &policy());
    set.one("k").await.unwrap();
    server.freeze();
    let says = "the rate limit's backend did not decide: no connection to Redis: \
                connecting again: no answer within 200ms";
    until("the timeout of a connection", || async {
        let error = set.one("k").await.unwrap_err().to_string();
        (error == says).then_some(())
    })
    .await;
    server.thaw();
    resumes(&set).await;
}

#[tokio::test]
async fn a_server_that_sent_no_answer_or_garbage_is_used_soon_after_it_recovers() {
    let (_server, proxy, set) = behind_a_proxy().await;
    let garbage: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    for answer in [b"", garbage] {
        proxy.answer_only(Some(answer));
        // The first attempt to connect begins within 50 ms, and hangs.
        tokio::time::sleep(Duration::from_millis(500)).await;
        proxy.answer_only(None);
        let recovered = Instant::now();
        resumes(&set).await;
        let took = recovered.elapsed();
        // Without further attempts this would take until the timeout of 5 s.
        assert!(took < Duration::from_secs(3), "{took:?} after {answer:?}");
    }
}
