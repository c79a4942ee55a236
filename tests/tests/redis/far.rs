//! A server in another region: a proxy delays its answers by 300 ms, as a distance of 150 ms in each direction would.

use std::time::Duration;

use tests::servers::{Proxy, Redis as Server};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tower_dist_ratelimit::{Consistency, FailureMode, Limiter, Policy, Quota};
use tower_dist_ratelimit_redis::Redis;

use crate::support::calls;

const LEASE: Duration = Duration::from_secs(2);

/// The limiter of one instance with this round-trip time to the server.
async fn region(server: &Server, away: Duration, sharing: Consistency) -> (Proxy, Limiter) {
    let proxy = Proxy::start(server.port()).await;
    let redis = Redis::builder(&format!("redis://127.0.0.1:{}", proxy.port()));
    let redis = redis.answer_timeout(Duration::from_secs(5)).connect().await;
    proxy.delay(away);
    let policy = Policy::new("regions", Quota::per_second(2_000));
    let limiter = Limiter::builder(redis.unwrap(), policy)
        .consistency(sharing)
        .backend_timeout(Duration::from_secs(5))
        .failure_mode(FailureMode::Closed)
        .build()
        .unwrap();
    (proxy, limiter)
}

/// Sends a request every 5 ms for `time`. Returns the sorted latencies, and the number of allowed requests.
async fn ask(limiter: &Limiter, time: Duration) -> (Vec<Duration>, usize) {
    let mut tick = interval(Duration::from_millis(5));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (end, mut tasks) = (Instant::now() + time, Vec::new());
    while Instant::now() < end {
        tick.tick().await;
        let limiter = limiter.clone();
        tasks.push(tokio::spawn(async move {
            let asked = Instant::now();
            let decision = limiter.check("client").await.unwrap();
            (asked.elapsed(), decision.allowed)
        }));
    }
    let (mut took, mut allowed) = (Vec::new(), 0);
    for task in tasks {
        let (time, passed) = task.await.unwrap();
        took.push(time);
        allowed += usize::from(passed);
    }
    took.sort();
    (took, allowed)
}

fn percentile(took: &[Duration], percent: usize) -> Duration {
    took[took.len() * percent / 100]
}

#[tokio::test]
async fn a_far_store_is_asked_at_the_speed_of_memory_with_leases() {
    let server = Server::start();
    let away = Duration::from_millis(300);
    let (_proxy, exact) = region(&server, away, Consistency::Exact).await;
    let (took, _) = ask(&exact, Duration::from_millis(300)).await;
    assert!(percentile(&took, 1) >= away);
    let (_proxy, limiter) = region(&server, away, Consistency::Leased(LEASE)).await;
    ask(&limiter, LEASE).await;
    let before = calls(&server);
    let (took, allowed) = ask(&limiter, Duration::from_secs(3)).await;
    let trips = calls(&server) - before;
    println!(
        "{} decisions, {trips} round trips, median {:?}, p99 {:?}",
        took.len(),
        percentile(&took, 50),
        percentile(&took, 99)
    );
    assert_eq!(allowed, took.len());
    assert!(
        percentile(&took, 99) < away / 2,
        "who waits for the store waits 300 ms"
    );
    assert!(trips <= 12, "{trips}");
}

/// Six data centres share one limit, and one of them has the server. At 60 % of the limit, leases make every decision
/// local.
#[tokio::test]
async fn six_data_centres_share_one_limit_without_waiting_for_each_other() {
    let server = Server::start();
    let aways = [1, 20, 80, 150, 220, 300].map(Duration::from_millis);
    let mut regions = Vec::new();
    for away in aways {
        let region = region(&server, away, Consistency::Leased(LEASE)).await;
        regions.push((away, region));
    }
    let asking = regions.iter().map(|(away, (_, limiter))| async move {
        ask(limiter, LEASE).await;
        (*away, ask(limiter, Duration::from_secs(3)).await)
    });
    for (away, (took, allowed)) in futures_util::future::join_all(asking).await {
        println!(
            "{away:?} away: median {:?}, p99 {:?}",
            percentile(&took, 50),
            percentile(&took, 99)
        );
        assert_eq!(allowed, took.len(), "{away:?}");
        let most = (away / 2).max(Duration::from_millis(75));
        assert!(percentile(&took, 99) < most, "{away:?}");
    }
}
