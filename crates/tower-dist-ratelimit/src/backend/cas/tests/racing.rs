//! Concurrent writers of one key: the tasks of one process, and several processes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::task::JoinSet;

use super::*;

/// Charges a key from many tasks until each has been rejected; returns the number of admitted requests.
async fn admitted(
    backends: &[Arc<CasBackend<Store>>],
    policy: &dyn Fn() -> Policy,
    writers: usize,
) -> u64 {
    let admitted = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..writers {
        let backend = Arc::clone(&backends[number % backends.len()]);
        let id = backend.register(&[policy()]).unwrap()[0];
        let admitted = Arc::clone(&admitted);
        tasks.spawn(async move {
            loop {
                match ask(&*backend, Charge::new(id, b"k", 1)).await {
                    Ok(verdict) if verdict.allowed => {
                        admitted.fetch_add(1, Relaxed);
                    }
                    Ok(_) => return,
                    Err(error) => assert!(error.to_string().contains("others changed"), "{error}"),
                }
            }
        });
    }
    tasks.join_all().await;
    admitted.load(Relaxed)
}

/// Threads of the machine, and a store whose answers take their time: loads and swaps of the writers mix.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thirty_two_concurrent_writers_admit_exactly_the_limit() {
    const LIMIT: u64 = 500;
    let policies: [&dyn Fn() -> Policy; 4] = [
        &|| policy(LIMIT),
        &|| policy(LIMIT).sliding_window_log(),
        &|| policy(LIMIT).sliding_window_buckets(4),
        &|| policy(LIMIT).fixed_window(),
    ];
    for processes in [1, 4, 32] {
        for policy in policies {
            let delay = Duration::from_millis(u64::from(processes == 4));
            let store = Store::new(Script {
                delay,
                ..Script::default()
            });
            let process = || Arc::new(CasBackend::new(store.clone()).timeout(HOUR));
            let backends: Vec<_> = (0..processes).map(|_| process()).collect();
            let total = admitted(&backends, policy, 32).await;
            assert_eq!(total, LIMIT, "{processes} processes, {:?}", policy());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_sets_are_charged_all_or_nothing() {
    let store = Store::default();
    let set = || {
        [
            policy(300),
            Policy::new("q", Quota::new(100, 24 * HOUR)).sliding_window_log(),
        ]
    };
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let backend = CasBackend::new(store.clone()).timeout(HOUR);
        let ids = backend.register(&set()).unwrap();
        tasks.spawn(async move {
            let charges = [0, 1].map(|place| Charge::new(ids[place], b"k", 1));
            let mut allowed = 0;
            for _ in 0..50 {
                let Answer::Later(answer) = backend.acquire(&charges, &mut []) else {
                    panic!("a store answers later");
                };
                allowed += u64::from(answer.await.unwrap().allowed);
            }
            allowed
        });
    }
    let allowed: u64 = tasks.join_all().await.into_iter().sum();
    let backend = CasBackend::new(store.clone());
    let ids = backend.register(&set()).unwrap();
    assert_eq!((allowed, remaining(&backend, ids[0]).await), (100, 200));
}
