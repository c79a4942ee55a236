//! Requests that are cancelled before their decision.

use std::time::Duration;

use tests::{
    cancel_each,
    servers::{Memcached as Server, Proxy},
};
use tokio::{task::JoinSet, time::timeout};
use tower_dist_ratelimit::{Policy, Quota, backend::Answer};
use tower_dist_ratelimit_memcached::Memcached;

use crate::support::{HOUR, LONG, Set, answered, connect};

const CLIENTS: usize = 30;

/// Tokens of the bucket that all clients share. It hardly refills during a test.
const EVERYONE: u64 = 1_000;

/// A limit for each client, which every client has exhausted, and a shared limit. The keys are spread over the servers.
async fn exhausted(memcached: &Memcached) -> Set {
    let set = Set::new(
        memcached,
        &[
            Policy::new("client", Quota::new(1, 10_000 * HOUR)),
            Policy::new("everyone", Quota::new(EVERYONE, 10_000 * HOUR)),
        ],
    );
    for number in 0..CLIENTS {
        let verdict = answered(ask(&set, number)).await.unwrap();
        assert!(verdict.allowed);
    }
    set
}

fn ask(set: &Set, number: usize) -> Answer {
    let client = format!("client {}", number % CLIENTS);
    set.ask(&[&client, "everyone"], 1, 1)
}

/// The number of shared tokens that rejected requests have taken.
async fn taken(set: &Set) -> u64 {
    set.memcached.finish_corrections(LONG).await.unwrap();
    let looked = answered(set.ask(&["nobody", "everyone"], 0, 0)).await;
    let passed = u64::try_from(CLIENTS).unwrap();
    EVERYONE - passed - looked.unwrap().decisions[1].remaining
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_rejections_leave_the_shared_bucket_as_it_was() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let hosts = servers.each_ref().map(|server| server.port().to_string());
    let url = format!("memcached://127.0.0.1:{}", hosts.join(",127.0.0.1:"));
    let memcached = connect(&url).await;
    let set = exhausted(&memcached).await;
    // Some requests fail immediately, because too many are in progress.
    let asked = (0..10_000).filter_map(|number| match ask(&set, number) {
        Answer::Later(later) => Some(later),
        _ => None,
    });
    for verdict in cancel_each(asked).await {
        assert!(!verdict.is_ok_and(|verdict| verdict.allowed));
    }
    assert_eq!((taken(&set).await, memcached.lost_corrections()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejections_that_miss_the_timeout_do_not_change_the_shared_bucket() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let mut proxies = Vec::new();
    for server in &servers {
        proxies.push(Proxy::start(server.port()).await);
    }
    let hosts: Vec<String> = proxies
        .iter()
        .map(|proxy| proxy.port().to_string())
        .collect();
    let url = format!("memcached://127.0.0.1:{}", hosts.join(",127.0.0.1:"));
    let memcached = connect(&url).await;
    let set = exhausted(&memcached).await;
    for proxy in &proxies {
        proxy.delay(Duration::from_millis(100));
    }
    let mut requests = JoinSet::new();
    for number in 0..200 {
        let answer = answered(ask(&set, number));
        requests.spawn(async move { timeout(Duration::from_millis(150), answer).await.is_err() });
    }
    assert!(requests.join_all().await.into_iter().all(|late| late));
    assert_eq!((taken(&set).await, memcached.lost_corrections()), (0, 0));
}
