//! Services that start while their servers are down.

use std::time::Duration;

use tests::servers::{Memcached as Server, free_port};
use tower_dist_ratelimit::{FailureMode, Limiter, Policy, Quota, Source};
use tower_dist_ratelimit_memcached::{ConnectError, Memcached};

use crate::support::{HOUR, LONG, Set, away_from_boundaries, until};

#[tokio::test]
async fn until_the_server_starts_each_failure_mode_decides_and_then_the_server_does() {
    away_from_boundaries().await;
    let mut server = Server::start();
    let url = server.url();
    server.kill();
    // An attempt without a connection fails immediately. The timeouts bound only the answers of the restarted server.
    let memcached = Memcached::builder(&url).answer_timeout(LONG);
    let memcached = memcached.connect_lazy().unwrap();
    let policy = Policy::new("p", Quota::new(3, HOUR)).fixed_window();
    let limiter = |on_error| {
        let builder = Limiter::builder(memcached.clone(), policy.clone());
        let builder = builder.backend_timeout(LONG).failure_mode(on_error);
        builder.build().unwrap()
    };
    let fallback = limiter(FailureMode::Local { instances: 3 });
    for allowed in [true, false] {
        let decision = fallback.check("k").await.unwrap();
        assert_eq!(decision.source, Source::Local);
        assert_eq!(decision.allowed, allowed);
    }
    let open = limiter(FailureMode::Open).check("k").await.unwrap();
    assert_eq!((open.source, open.allowed), (Source::Allowed, true));
    let closed = limiter(FailureMode::Closed).check("k").await.unwrap_err();
    assert!(closed.to_string().contains("no connection"), "{closed}");

    server.restart();
    // `fallback` waits for the connection, because five failures open its circuit. After the circuit closes, `fallback`
    // charges the tokens that it has admitted alone to the backend.
    let set = Set::new(&memcached, &[policy]);
    until("a connection", || async { set.take("any", 1).await.ok() }).await;
    for key in ["other", "k"] {
        let decision = fallback.check(key).await.unwrap();
        assert_eq!(
            (decision.source, decision.remaining),
            (Source::Backend, 2),
            "{key}"
        );
    }
}

#[tokio::test]
async fn the_error_until_the_first_connection_names_the_reason() {
    let url = format!("memcached://127.0.0.1:{}", free_port());
    let memcached = Memcached::connect_lazy(&url).unwrap();
    let set = Set::new(&memcached, &[Policy::new("p", Quota::per_hour(1))]);
    until("the reason", || async {
        let error = set.take("k", 1).await.unwrap_err().to_string();
        error.contains("cannot be reached").then_some(())
    })
    .await;
}

#[tokio::test]
async fn connect_lazy_reports_invalid_settings_immediately() {
    let error = |built: Result<Memcached, ConnectError>| built.unwrap_err().to_string();
    let malformed = error(Memcached::connect_lazy("localhost:11211"));
    assert!(malformed.contains("memcached://host:port"), "{malformed}");
    let builder = || Memcached::builder("memcached://localhost");
    assert!(error(builder().prefix(" ").connect_lazy()).contains("the prefix of keys"));
    let zero = builder().answer_timeout(Duration::ZERO);
    assert!(error(zero.connect_lazy()).contains("answer_timeout"));
}
