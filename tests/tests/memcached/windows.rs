//! Windows that begin with a key's first request, on the server's clock.

use std::time::Duration;

use tests::servers::Memcached as Server;
use tokio::time::{Instant, sleep};
use tower_dist_ratelimit::{Policy, Quota, backend::Backend};

use crate::support::{Set, connect};

const WINDOW: Duration = Duration::from_secs(2);

/// The server's clock counts seconds, and a stopped machine makes it count one late.
#[tokio::test]
async fn a_first_hit_window_is_never_shorter_and_at_most_a_tick_longer() {
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let set = Set::new(
        &memcached,
        &[Policy::new("first", Quota::new(2, WINDOW)).fixed_window_from_first_request()],
    );
    let ticks = || server.stat("uptime");
    let lasts = WINDOW.as_secs() + 1;
    for number in 0..3 {
        let key = format!("key {number}");
        sleep(Duration::from_millis(300)).await;
        let before = ticks();
        assert!(set.take(&key, 2).await.unwrap().allowed);
        let begun = ticks();
        let refused = set.take(&key, 1).await.unwrap();
        let wait = refused.retry_after.unwrap();
        assert!(wait <= WINDOW + Duration::from_secs(1), "{refused:?}");
        assert_eq!(wait, refused.reset_after);
        loop {
            let asked = ticks();
            let decision = set.take(&key, 1).await.unwrap();
            if decision.allowed {
                let end = ticks();
                assert!(end - before >= lasts, "from {before} to {end}");
                break;
            }
            assert!(asked < begun + lasts, "from {begun}, refused at {asked}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Otherwise the key would be rejected until the window ends: forever, or for 23 days.
#[tokio::test]
async fn a_number_that_is_kept_longer_than_a_window_is_none_of_ours_and_is_replaced() {
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let policy = Policy::new("first", Quota::new(5, WINDOW)).fixed_window_from_first_request();
    let set = Set::new(&memcached, &[policy]);
    for kept in ["0", "2000000"] {
        assert_eq!(set.take("k", 1).await.unwrap().remaining, 4);
        let key = server.keys().pop().unwrap();
        server.call(&format!("set {key} 0 {kept} 2\r\n99"));
        let look = set.look("k").await;
        assert_eq!((look.remaining, look.reset_after), (5, Duration::ZERO));
        let healed = set.take("k", 1).await.unwrap();
        assert_eq!((healed.allowed, healed.remaining), (true, 4));
        assert!(healed.reset_after <= WINDOW + Duration::from_secs(1));
        server.call("flush_all");
    }
}

/// A charge that is rejected while a window ends is returned to that window only, so the next window never admits more
/// than the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_never_taken_back_from_the_next_window() {
    const LIMIT: u64 = 20;
    let server = Server::start();
    let policy =
        || Policy::new("first", Quota::new(LIMIT, WINDOW)).fixed_window_from_first_request();
    let end = Instant::now() + 4 * WINDOW;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8_u64 {
        let set = Set::new(&connect(&server.url()).await, &[policy()]);
        tasks.spawn(async move {
            let mut admitted = Vec::new();
            while Instant::now() < end {
                let (asked, cost) = (Instant::now(), 1 + number % 3);
                let decision = set.take("k", cost).await.unwrap();
                if decision.allowed {
                    admitted.push((asked, Instant::now(), cost));
                }
                sleep(Duration::from_millis(1)).await;
            }
            admitted
        });
    }
    let mut admitted = Vec::new();
    while let Some(one) = tasks.join_next().await {
        admitted.extend(one.unwrap());
    }
    admitted.sort();
    // A window begins with the first admitted request; the requests that returned before its earliest end are certainly
    // in it.
    while let Some(&(first, ..)) = admitted.first() {
        let within = |&&(_, told, _): &&(Instant, Instant, u64)| told <= first + WINDOW;
        let tokens: u64 = admitted.iter().filter(within).map(|(.., cost)| cost).sum();
        assert!(tokens <= LIMIT, "{tokens} of {LIMIT}");
        // The next window begins with a request that was sent after the latest end.
        admitted.retain(|&(asked, ..)| asked > first + WINDOW);
    }
}

/// The count of the window before the boundary is in the same value as the present one.
#[tokio::test]
async fn a_reset_after_a_boundary_clears_the_previous_window_too() {
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    // Windows begin at multiples of their length since 2020, which was a multiple of four seconds.
    const WINDOW: Duration = Duration::from_secs(4);
    let policy = Policy::new("two", Quota::new(5, WINDOW)).sliding_window();
    let set = Set::new(&memcached, &[policy]);
    for number in 0..5 {
        let key = format!("key {number}");
        let time = || std::time::UNIX_EPOCH.elapsed().unwrap();
        let window = || time().as_secs() / WINDOW.as_secs();
        let left = WINDOW.as_millis() - time().as_millis() % WINDOW.as_millis();
        sleep(Duration::from_millis(
            u64::try_from(left).unwrap().saturating_sub(500),
        ))
        .await;
        let before = window();
        assert!(set.take(&key, 5).await.unwrap().allowed);
        while window() == before {
            sleep(Duration::from_millis(10)).await;
        }
        let rejected = set.take(&key, 5).await.unwrap();
        // A machine that stood still for a window proves nothing.
        if window() == before + 1 {
            assert!(!rejected.allowed, "{rejected:?}");
            memcached.reset(set.ids[0], key.as_bytes()).await.unwrap();
            assert!(set.take(&key, 5).await.unwrap().allowed);
            return;
        }
    }
    panic!("the machine stood still five times");
}
