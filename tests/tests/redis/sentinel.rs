use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use tests::servers::{Redis as Server, Sentinels};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::Instant,
};
use tower_dist_ratelimit::{Limiter, Policy, Quota};
use tower_dist_ratelimit_redis::Redis;

use crate::{
    support::{LONG, Set, connect, until},
    under_load::{CALM, Load, PLENTY, Report, TIMEOUT},
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

    // The other two sentinels are a majority; the client tries them after the frozen one times out.
    set.sentinels()[0].freeze();
    let policy = Policy::new("p", Quota::per_hour(PLENTY)).fixed_window_from_first_request();
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
    report.is_in_time(TIMEOUT);
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
async fn a_user_or_password_of_sentinels_without_a_sentinel_url_is_an_error() {
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
        let problem = "is set, but the URL is not one of redis-sentinel://";
        assert_eq!(error, format!("{setting}: {problem}"));
    }
}

/// A sentinel that names the server on this port, which the test can change.
async fn sentinel_of(primary: Arc<AtomicU16>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                let said = String::from_utf8_lossy(&buffer[..n]);
                let answer = if said.contains("GET-MASTER-ADDR-BY-NAME") {
                    let port = primary.load(Ordering::Relaxed).to_string();
                    format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
                } else {
                    "-ERR unknown command\r\n".repeat(said.matches("CLIENT\r\n").count())
                };
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    });
    port
}

fn fixed(port: u16) -> Arc<AtomicU16> {
    Arc::new(AtomicU16::new(port))
}

#[tokio::test]
async fn a_primary_that_was_cut_off_from_its_replicas_is_replaced_by_the_elected_one() {
    let (old, new) = (Server::start(), Server::start());
    let primary = fixed(old.port());
    let sentinel = sentinel_of(Arc::clone(&primary)).await;
    let set = Set::new(
        &connect(&format!("redis-sentinel://127.0.0.1:{sentinel}/any")).await,
        &[Policy::new("p", Quota::per_hour(5))],
    );
    assert_eq!(set.one("k").await.unwrap().remaining, 4);
    // Writes to the old primary would be lost, so it rejects them.
    old.call(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    primary.store(new.port(), Ordering::Relaxed);
    let error = set.one("k").await.unwrap_err().to_string();
    assert!(error.contains("NOREPLICAS"), "{error}");
    let decision = until("the other server", || async { set.one("k").await.ok() }).await;
    assert_eq!(decision.remaining, 4, "what it knows is its own");
}

#[tokio::test]
async fn a_sentinel_that_names_a_stopped_primary_does_not_prevent_queries_to_the_others() {
    let server = Server::start();
    // Like a network partition: the address accepts connections and never answers.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cut_off = sentinel_of(fixed(gone.local_addr().unwrap().port())).await;
    let knows = sentinel_of(fixed(server.port())).await;
    let url = format!("redis-sentinel://127.0.0.1:{cut_off},127.0.0.1:{knows}/any");
    let set = Set::new(
        &connect(&url).await,
        &[Policy::new("p", Quota::per_hour(5))],
    );
    assert!(set.one("k").await.unwrap().allowed);
}
