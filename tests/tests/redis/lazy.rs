//! Services that start while their server is down.

use tests::servers::{Redis as Server, Sentinels, free_port};
use tower_dist_ratelimit::{FailureMode, Limiter, Policy, Quota, RateLimitLayer, Source};
use tower_dist_ratelimit_redis::{ConnectError, Redis};

use crate::{
    cluster::Nodes,
    support::{LONG, Set, until},
};

fn lazy(url: &str) -> Redis {
    Redis::connect_lazy(url).unwrap()
}

#[tokio::test]
async fn until_the_server_starts_each_failure_mode_decides_and_then_the_server_does() {
    let mut server = Server::start();
    let url = server.url();
    server.kill();
    // An attempt without a connection fails immediately. The timeouts bound only the answers of the restarted server.
    let redis = Redis::builder(&url).answer_timeout(LONG);
    let redis = redis.connect_lazy().unwrap();
    let policy = Policy::new("p", Quota::per_hour(3)).sliding_window_log();
    let limiter = |on_error| {
        let builder = Limiter::builder(redis.clone(), policy.clone());
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
    let layer = RateLimitLayer::builder(redis.clone());
    let policies = [
        Policy::new("a", Quota::per_hour(1)),
        Policy::new("b", Quota::per_hour(1)),
    ];
    let layer = policies
        .into_iter()
        .fold(layer, |layer, policy| layer.limit(policy));
    assert!(layer.build().is_ok());

    server.restart();
    // `fallback` waits for the connection, because five failures open its circuit. After the circuit closes, `fallback`
    // charges the tokens that it has admitted alone to the backend.
    let set = Set::new(&redis, &[policy]);
    until("a connection", || async { set.one("any").await.ok() }).await;
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
    let server = Server::with(&["--requirepass", "right"]);
    let locked = server.url().replace("redis://", "redis://:wrong@");
    for (url, says) in [
        (
            format!("redis://127.0.0.1:{}", free_port()),
            "cannot be reached",
        ),
        (locked, "user or password"),
        (
            format!("redis-cluster://127.0.0.1:{}", free_port()),
            "cannot be reached",
        ),
        (
            format!("redis-sentinel://127.0.0.1:{}/main", free_port()),
            "cannot be reached",
        ),
    ] {
        let set = Set::new(&lazy(&url), &[Policy::new("p", Quota::per_hour(1))]);
        let error = set.one("k").await.unwrap_err().to_string();
        assert!(error.contains("no connection to Redis: "), "{error}");
        until("the reason", || async {
            let error = set.one("k").await.unwrap_err().to_string();
            error.contains(says).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn the_error_before_the_first_answer_of_a_cluster_says_that_no_owner_is_known() {
    let redis = lazy(&format!("redis-cluster://127.0.0.1:{}", free_port()));
    let set = Set::new(&redis, &[Policy::new("p", Quota::per_hour(1))]);
    let error = set.one("k").await.unwrap_err().to_string();
    let says = "the rate limit's backend did not decide: no connection to Redis: \
                the owners of the slots are not known yet";
    assert_eq!(error, says);
}

#[tokio::test]
async fn connect_lazy_reports_invalid_settings_immediately() {
    let error = |built: Result<Redis, ConnectError>| built.unwrap_err().to_string();
    let malformed = error(Redis::connect_lazy("localhost:6379"));
    assert!(malformed.contains("redis://host:port"), "{malformed}");
    let prefix = Redis::builder("redis://localhost").prefix("{");
    assert!(error(prefix.connect_lazy()).contains("the prefix of keys"));
    let zero = Redis::builder("redis://localhost").answer_timeout(std::time::Duration::ZERO);
    assert!(error(zero.connect_lazy()).contains("answer_timeout"));
    let roots = Redis::builder("redis://localhost").root_certificates("any");
    assert!(error(roots.connect_lazy()).contains("rediss://"));
}

#[tokio::test]
async fn the_primary_that_sentinels_name_is_connected_to_in_the_background() {
    let sentinels = tokio::task::spawn_blocking(|| Sentinels::single(&[], ""));
    let sentinels = sentinels.await.unwrap();
    let redis = lazy(&sentinels.url());
    let set = Set::new(&redis, &[Policy::new("p", Quota::per_hour(5))]);
    let decision = until("a decision", || async { set.one("k").await.ok() }).await;
    assert_eq!(decision.remaining, 4);
}

#[tokio::test]
async fn the_nodes_of_a_cluster_that_starts_later_are_found() {
    let port = free_port();
    let redis = lazy(&format!("redis-cluster://127.0.0.1:{port}"));
    let set = Set::new(&redis, &[Policy::new("p", Quota::per_hour(5))]);
    until("a refused connection", || async {
        let error = set.one("k").await.unwrap_err().to_string();
        error.contains("cannot be reached").then_some(())
    })
    .await;
    let _nodes = Nodes::start(&[port], &[]).await;
    let decision = until("a decision", || async { set.one("k").await.ok() }).await;
    assert_eq!(decision.remaining, Nodes::REMAINING);
}
