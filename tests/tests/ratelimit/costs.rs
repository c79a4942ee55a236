//! Costs of a decision on a backend, as the table in the docs of `tower-dist-ratelimit` states them: round trips, and
//! bytes per key.

use std::{ops::RangeInclusive, time::Duration};

use tests::servers::{Memcached, Proxy, Redis};
use tokio::time::Instant;
use tower_dist_ratelimit::{Consistency, Limiter, Policy, Quota, backend::Backend};

/// A line of the table, for names of usual length.
struct Line {
    name: &'static str,
    of: fn(Policy) -> Policy,
    /// Bytes in Redis.
    redis: u64,
    /// Round trips and bytes in Memcached.
    memcached: (u128, u64),
}

const LINES: [Line; 9] = [
    Line {
        name: "bucket",
        of: |policy| policy,
        redis: 190,
        memcached: (2, 150),
    },
    Line {
        name: "meter",
        of: Policy::leaky_bucket,
        redis: 190,
        memcached: (2, 150),
    },
    Line {
        name: "queue",
        of: |policy| policy.leaky_queue(Duration::from_secs(3_600)),
        redis: 190,
        memcached: (2, 150),
    },
    Line {
        name: "fixed",
        of: Policy::fixed_window,
        redis: 190,
        memcached: (1, 150),
    },
    Line {
        name: "first",
        of: Policy::fixed_window_from_first_request,
        redis: 190,
        memcached: (1, 120),
    },
    Line {
        name: "two",
        of: Policy::sliding_window,
        redis: 190,
        memcached: (2, 150),
    },
    Line {
        name: "sub",
        of: |policy| policy.sliding_window_buckets(5),
        redis: 190,
        memcached: (2, 150),
    },
    Line {
        name: "whole",
        of: |policy| policy.sliding_window_strict(5),
        redis: 190,
        memcached: (2, 150),
    },
    Line {
        name: "log",
        of: Policy::sliding_window_log,
        redis: LOG,
        memcached: (2, 150),
    },
];

/// Bytes of a log in Redis, and of each token in it.
const LOG: u64 = 270;
const LOGGED: u64 = 11;

fn limiter(backend: impl Backend, line: &Line) -> Limiter {
    // A window of an hour, so that it seldom ends during the test.
    let policy = (line.of)(Policy::new(line.name, Quota::per_hour(1_000)));
    let builder = Limiter::builder(backend, policy);
    let builder = builder.backend_timeout(Duration::from_secs(30));
    builder.build().unwrap()
}

/// The delay of the servers' answers.
const FAR: Duration = Duration::from_millis(100);

/// The round trips of a decision. A busy machine can make single decisions slower, but not all of them.
async fn round_trips(limiter: &Limiter, far: &Proxy) -> u128 {
    // The first decision also loads the script.
    assert!(limiter.check("k").await.unwrap().allowed);
    far.delay(FAR);
    let mut least = u128::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        assert!(limiter.check("k").await.unwrap().allowed);
        least = least.min(start.elapsed().as_micros() / FAR.as_micros());
    }
    far.delay(Duration::ZERO);
    least
}

#[tokio::test]
async fn a_decision_takes_the_round_trips_that_the_docs_say() {
    const PATIENCE: Duration = Duration::from_secs(30);
    let (redis, memcached) = (Redis::start(), Memcached::start());
    let far_redis = Proxy::start(redis.port()).await;
    let far_memcached = Proxy::start(memcached.port()).await;
    let url = format!("redis://127.0.0.1:{}", far_redis.port());
    let redis = tower_dist_ratelimit_redis::Redis::builder(&url).answer_timeout(PATIENCE);
    let redis = redis.connect().await.unwrap();
    let url = format!("memcached://127.0.0.1:{}", far_memcached.port());
    let memcached =
        tower_dist_ratelimit_memcached::Memcached::builder(&url).answer_timeout(PATIENCE);
    let memcached = memcached.connect().await.unwrap();
    for line in &LINES {
        let trips = round_trips(&limiter(redis.clone(), line), &far_redis).await;
        assert_eq!(trips, 1, "{} in Redis", line.name);
        let trips = round_trips(&limiter(memcached.clone(), line), &far_memcached).await;
        assert_eq!(trips, line.memcached.0, "{} in Memcached", line.name);
    }
}

const KEYS: u64 = 500;

/// Fills the table with keys that have each used this number of tokens.
async fn fill(limiter: &Limiter, tokens: u64) {
    for key in 0..KEYS {
        assert!(limiter.check_n(key, tokens).await.unwrap().allowed);
    }
}

/// A tolerance for versions of the server and for the lengths of keys.
fn about(bytes: u64) -> RangeInclusive<u64> {
    bytes * 3 / 4..=bytes * 11 / 10
}

/// Bytes per key, including the key's part of the server's tables.
async fn bytes_in_redis(line: &Line, tokens: u64) -> u64 {
    let server = Redis::start();
    let used = || -> u64 {
        let info = server.call(&["INFO", "memory"]).text();
        let mut lines = info.lines();
        let used = lines.find_map(|line| line.strip_prefix("used_memory:"));
        used.unwrap().parse().unwrap()
    };
    let limiter = limiter(
        tower_dist_ratelimit_redis::Redis::connect(&server.url())
            .await
            .unwrap(),
        line,
    );
    limiter.check("script").await.unwrap();
    let before = used();
    fill(&limiter, tokens).await;
    (used() - before) / KEYS
}

#[tokio::test]
async fn a_key_in_redis_takes_the_bytes_that_the_docs_say() {
    for line in &LINES {
        let tokens = if line.redis == LOG { 100 } else { 3 };
        let bytes = bytes_in_redis(line, tokens).await;
        let logged = if line.redis == LOG {
            LOGGED * tokens
        } else {
            0
        };
        let expected = about(line.redis + logged);
        assert!(expected.contains(&bytes), "{}: {bytes}", line.name);
    }
    // The first token already creates a list.
    let log = LINES.iter().find(|line| line.redis == LOG).unwrap();
    let bytes = bytes_in_redis(log, 1).await;
    assert!(about(LOG).contains(&bytes), "an empty log: {bytes}");
}

/// Bytes per item, including the unused rest of its slab chunk.
fn bytes_in_use(server: &Memcached) -> (u64, u64) {
    let lines = server.call("stats slabs");
    let number = |class: &str, name: &str| -> Option<u64> {
        let name = format!("STAT {class}:{name} ");
        lines
            .iter()
            .find_map(|line| line.strip_prefix(&name)?.parse().ok())
    };
    let classes = lines.iter().filter_map(|line| {
        let class = line.strip_prefix("STAT ")?.strip_suffix(char::is_numeric)?;
        class.split_once(":chunk_size").map(|(class, _)| class)
    });
    let classes = classes.map(|class| {
        let (size, used) = (number(class, "chunk_size"), number(class, "used_chunks"));
        (size.unwrap() * used.unwrap(), used.unwrap())
    });
    classes.fold((0, 0), |(bytes, items), (more, used)| {
        (bytes + more, items + used)
    })
}

#[tokio::test]
async fn a_value_in_memcached_takes_the_bytes_that_the_docs_say() {
    for line in &LINES {
        let (_, expected) = line.memcached;
        let server = Memcached::start();
        let memcached = tower_dist_ratelimit_memcached::Memcached::connect(&server.url())
            .await
            .unwrap();
        let limiter = limiter(memcached, line);
        let before = bytes_in_use(&server);
        fill(&limiter, 3).await;
        let (bytes, items) = bytes_in_use(&server);
        let bytes = (bytes - before.0) / (items - before.1);
        assert!(about(expected).contains(&bytes), "{}: {bytes}", line.name);
    }
}

#[tokio::test]
async fn a_leased_key_takes_a_few_round_trips_per_lease_time_however_many_decisions() {
    let server = Redis::start();
    let scripts = || -> u32 {
        let info = server.call(&["INFO", "commandstats"]).text();
        let mut lines = info.lines();
        let calls = lines.find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        let (calls, _) = calls.unwrap().split_once(',').unwrap();
        calls.parse().unwrap()
    };
    let redis = tower_dist_ratelimit_redis::Redis::connect(&server.url())
        .await
        .unwrap();
    let plenty = Policy::new("plenty", Quota::per_second(100_000_000));
    let limiter = Limiter::builder(redis, plenty).consistency(Consistency::leased());
    let limiter = limiter.backend_timeout(Duration::from_secs(30));
    let limiter = limiter.build().unwrap();
    let ask_for = async |time: Duration| {
        let (start, mut decisions) = (Instant::now(), 0_u32);
        while start.elapsed() < time {
            for _ in 0..16 {
                assert!(limiter.check("hot").await.unwrap().allowed);
                decisions += 1;
            }
            tokio::task::yield_now().await;
        }
        decisions
    };
    ask_for(Duration::from_millis(500)).await;
    let before = scripts();
    let decisions = ask_for(Duration::from_secs(2)).await;
    let trips = scripts() - before;
    println!("{decisions} decisions, {trips} round trips");
    assert!(trips <= 3 * 20, "{trips} in 20 lease times");
    assert!(decisions >= 100 * trips, "{trips} for {decisions}");
}
