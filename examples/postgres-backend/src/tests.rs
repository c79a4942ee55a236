use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tests::servers;
use tokio::task::JoinSet;
use tower_dist_ratelimit::{
    Policy, Quota,
    backend::{Answer, Backend, CasBackend, Charge, CompareAndSwap},
    conformance::{Conformance, Sleeping},
};

use crate::postgres::Postgres;

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::test(flavor = "multi_thread")]
async fn the_backend_keeps_all_promises() {
    let server = servers::Postgres::start();
    let postgres = Postgres::connect(&server.url()).await.unwrap();
    let backend = move || CasBackend::new(postgres.clone()).timeout(Duration::from_secs(10));
    let grain = Duration::from_millis(20);
    let kit = Conformance::new(backend, Sleeping::new(grain)).sequences(10);
    kit.run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_two_concurrent_writers_admit_exactly_the_limit() {
    const LIMIT: u64 = 300;
    let server = servers::Postgres::start();
    for policy in [
        Policy::leaky_bucket,
        Policy::sliding_window_log,
        Policy::sliding_window,
    ] {
        let admitted = Arc::new(AtomicU64::new(0));
        let mut writers = JoinSet::new();
        for _ in 0..32 {
            // Each writer has a connection and a backend of its own, like a process.
            let (url, admitted) = (server.url(), Arc::clone(&admitted));
            writers.spawn(async move {
                let store = Postgres::connect(&url).await.unwrap();
                let backend = CasBackend::new(store).timeout(DAY);
                let policy = policy(Policy::new("p", Quota::new(LIMIT, 365 * DAY)));
                let charge = Charge::new(backend.register(&[policy]).unwrap()[0], b"k", 1);
                while let Answer::Later(answer) = backend.acquire(&[charge], &mut []) {
                    if !answer.await.unwrap().allowed {
                        return;
                    }
                    admitted.fetch_add(1, Relaxed);
                }
            });
        }
        writers.join_all().await;
        assert_eq!(admitted.load(Relaxed), LIMIT);
    }
}

#[tokio::test]
async fn a_swap_succeeds_once_per_version_and_an_expired_value_is_absent() {
    let server = servers::Postgres::start();
    let store = Postgres::connect(&server.url()).await.unwrap();
    let swap = |version, ttl| store.swap(b"k", version, b"v", ttl);
    assert!(swap(None, DAY).await.unwrap());
    assert!(!swap(None, DAY).await.unwrap());
    let (_, first) = store.load(b"k").await.unwrap().unwrap();
    assert!(swap(Some(first), DAY).await.unwrap());
    assert!(!swap(Some(first), DAY).await.unwrap());
    let (_, second) = store.load(b"k").await.unwrap().unwrap();
    assert!(swap(Some(second), Duration::ZERO).await.unwrap());
    assert_eq!(store.load(b"k").await.unwrap(), None);
    // The next value of the key has a version that none had before, also after the row was deleted.
    assert_eq!(store.delete_expired().await.unwrap(), 1);
    assert!(swap(None, DAY).await.unwrap());
    let (value, third) = store.load(b"k").await.unwrap().unwrap();
    assert!(value == b"v" && third > second + 1);
    assert!(!swap(Some(second), DAY).await.unwrap());
}
