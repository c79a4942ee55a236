use std::time::Duration;

use tests::servers::Sentinels;
use tokio::time::Instant;
use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Redis};

use crate::{
    ladder::{CALM, DEADLINE, Load, PLENTY, Report},
    support::{LONG, Set, connect, until},
};

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

    // The other two are a majority, and are asked after this one has not answered.
    set.sentinels()[0].freeze();
    let policy = Policy::new("p", Quota::per_hour(PLENTY)).first_hit();
    let load = Load::start(Limiter::new(connect(&url).await, policy).unwrap());
    tokio::time::sleep(CALM).await;
    let before = set.primary();
    let began = Instant::now();
    set.servers_mut()[0].kill();
    let begun = Instant::now();
    let elected = tokio::task::block_in_place(|| {
        while set.primary() == before {
            assert!(begun.elapsed() < 2 * LONG, "no election");
        }
        Instant::now()
    });
    until("decisions to resume", || async {
        load.is_calm(elected).then_some(())
    })
    .await;
    let report = Report {
        name: "a primary killed, until the sentinels have elected another",
        began,
        begun,
        ending: elected,
        ended: elected,
        load: load.stop().await,
        forgot: false,
    };
    println!("{}\n{report}", Report::HEAD);
    report.is_in_time(DEADLINE);
    assert!(report.load.samples.iter().any(|one| !one.is_by_store()));
    assert!(
        report.back() < Duration::from_secs(10),
        "{:?}",
        report.back()
    );
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
async fn a_user_or_password_of_sentinels_where_there_are_none_is_refused() {
    for (builder, setting) in [
        (
            Redis::builder("redis://localhost").sentinel_password("secret"),
            "sentinel_password",
        ),
        (
            Redis::builder("redis-cluster://localhost").sentinel_user("asker"),
            "sentinel_user",
        ),
    ] {
        let error = builder.connect().await.unwrap_err().to_string();
        assert!(error.starts_with(setting), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
