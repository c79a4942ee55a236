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

#[tokio::test]
async fn sentinels_can_have_a_password_and_users_of_their_own() {
    let set = tokio::task::spawn_blocking(|| {
        let lines = format!(
            "requirepass sentinels\n\
             user asker on >asks -@all +sentinel|get-master-addr-by-name\n\
             sentinel auth-pass {} servers",
            Sentinels::NAME
        );
        Sentinels::single(&["--requirepass", "servers"], &lines)
    });
    let set = set.await.unwrap();
    let url = set.url_of(":servers@");
    let builder = || Redis::builder(&url);
    for good in [
        builder().sentinel_password("sentinels"),
        builder().sentinel_user("asker").sentinel_password("asks"),
    ] {
        let limits = Set::new(
            &good.connect().await.unwrap(),
            &[Policy::new("p", Quota::per_hour(10))],
        );
        assert!(limits.one("k").await.unwrap().allowed);
    }
    for bad in [
        builder(),
        builder().sentinel_password("servers"),
        builder()
            .sentinel_user("asker")
            .sentinel_password("sentinels"),
    ] {
        let error = bad.connect().await.unwrap_err().to_string();
        assert!(error.contains("user or password"), "{error}");
        assert!(!error.contains("servers"), "{error}");
    }
}

#[tokio::test]
async fn a_password_for_sentinels_that_are_none_is_refused() {
    for (builder, setting) in [
        (
            Redis::builder("redis://localhost").sentinel_password("secret"),
            "sentinel_password",
        ),
        (
            Redis::builder("redis-sentinel://localhost/name").sentinel_user("asker"),
            "sentinel_user",
        ),
    ] {
        let error = builder.connect().await.unwrap_err().to_string();
        assert!(error.starts_with(setting), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
