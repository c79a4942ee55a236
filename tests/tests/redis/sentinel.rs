use std::{sync::Arc, time::Duration};

use tests::servers::Sentinels;
use tokio::time::Instant;
use tower_dist_ratelimit::{Policy, Quota, backend::Redis};

use crate::support::{LONG, Set, connect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_under_load_decisions_resume_in_the_same_process() {
    let mut set = tokio::task::spawn_blocking(Sentinels::start).await.unwrap();
    let url = set.url();
    let unknown = Redis::connect(&url.replace(Sentinels::NAME, "other"))
        .await
        .unwrap_err();
    assert!(
        unknown
            .to_string()
            .contains("does not know a primary named \"other\""),
        "{unknown}"
    );

    let limits = Arc::new(Set::new(
        &connect(&url).await,
        &[Policy::new("p", Quota::per_hour(1_000_000))],
    ));
    limits.one("k").await.unwrap();
    let before = set.primary();
    set.servers_mut()[0].kill();
    let killed = Instant::now();
    // Load that does not stop for errors.
    let load: Vec<_> = (0..8)
        .map(|_| {
            let limits = Arc::clone(&limits);
            tokio::spawn(async move {
                let mut failed = 0;
                while killed.elapsed() < 3 * LONG {
                    match limits.one("k").await {
                        Ok(_) if failed > 0 => return (failed, Instant::now()),
                        Ok(_) => {}
                        Err(_) => failed += 1,
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                panic!("no decision after the failover");
            })
        })
        .collect();
    let elected = tokio::task::block_in_place(|| {
        while set.primary() == before {
            assert!(killed.elapsed() < 2 * LONG, "no election");
        }
        Instant::now()
    });
    for task in load {
        let (failed, resumed) = task.await.unwrap();
        assert!(failed > 0);
        assert!(resumed.saturating_duration_since(elected) < Duration::from_secs(10));
    }
}
