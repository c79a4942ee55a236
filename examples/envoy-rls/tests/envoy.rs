//! A real Envoy with the configuration of the README, in front of the real binary. `scripts/envoy` runs these tests.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::collections::BTreeSet;

use futures_util::stream::{self, StreamExt as _};
use reqwest::{Client, Response, StatusCode};
use tests::servers::{Redis, Server, free_port};
use tests::soon;

const ENVOY_CONFIG: &str = include_str!("../envoy.yaml");
const LIMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/limits.yaml");

/// Envoy, and the rate limit service that it calls.
struct Running {
    url: String,
    client: Client,
    service: Server,
    _envoy: Server,
}

/// Starts the service with these options, and an Envoy.
fn start(options: &[&str]) -> Running {
    let service = Server::start_on(free_port, |port| {
        let listen = format!("127.0.0.1:{port}");
        // A busy machine takes longer than the defaults allow.
        let command = [
            env!("CARGO_BIN_EXE_envoy-rls"),
            "--config",
            LIMITS,
            "--listen",
            &listen,
            "--backend-timeout",
            "1000",
        ];
        command
            .iter()
            .chain(options)
            .map(|&part| part.to_owned())
            .collect()
    });
    let envoy = Server::start_on(free_port, |port| {
        let config = ENVOY_CONFIG
            .replace("port_value: 10000", &format!("port_value: {port}"))
            .replace("port_value: 10001", &format!("port_value: {}", free_port()))
            .replace(
                "port_value: 8081",
                &format!("port_value: {}", service.port()),
            )
            .replace("timeout: 0.1s", "timeout: 10s");
        let program =
            std::env::var("ENVOY").expect("ENVOY: the path of a real Envoy; scripts/envoy sets it");
        let options = [
            "--config-yaml",
            &config,
            "--concurrency",
            "1",
            "--disable-hot-restart",
        ];
        std::iter::once(program)
            .chain(options.map(str::to_owned))
            .collect()
    });
    Running {
        url: format!("http://127.0.0.1:{}", envoy.port()),
        client: Client::new(),
        service,
        _envoy: envoy,
    }
}

impl Running {
    async fn get(&self, path: &str, user: &str) -> Response {
        let request = self
            .client
            .get(format!("{}{path}", self.url))
            .header("x-user", user);
        soon(request.send()).await.unwrap()
    }

    async fn status(&self, user: &str) -> StatusCode {
        self.get("/", user).await.status()
    }

    /// Uses up a user's limit of 5 requests.
    async fn exhaust(&self, user: &str) {
        for _ in 0..5 {
            assert_eq!(self.status(user).await, StatusCode::OK);
        }
        assert_eq!(self.status(user).await, StatusCode::TOO_MANY_REQUESTS);
    }

    /// The resident memory of the service, in bytes.
    fn resident(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.service.pid())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        kilobytes * 1024
    }
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response
        .headers()
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
#[ignore = "needs a real Envoy: run scripts/envoy"]
async fn envoy_allows_and_rejects_with_headers() {
    let running = start(&[]);
    let allowed = running.get("/", "ada").await;
    assert_eq!(allowed.status(), StatusCode::OK);
    assert_eq!(
        header(&allowed, "ratelimit-policy"),
        r#""user";q=5;w=86400"#
    );
    assert!(header(&allowed, "ratelimit").starts_with(r#""user";r=4;t="#));
    assert_eq!(header(&allowed, "x-ratelimit-remaining"), "4");
    assert_eq!(header(&allowed, "retry-after"), "");
    for _ in 0..4 {
        assert_eq!(running.status("ada").await, StatusCode::OK);
    }
    let rejected = running.get("/", "ada").await;
    assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&rejected, "x-envoy-ratelimited"), "true");
    assert_eq!(
        header(&rejected, "x-ratelimit-limit"),
        r#"5, 5;w=86400;name="user""#
    );
    assert_eq!(header(&rejected, "x-ratelimit-remaining"), "0");
    let retry_after: u64 = header(&rejected, "retry-after").parse().unwrap();
    assert!((1..=86_400).contains(&retry_after), "{retry_after}");
    assert_eq!(
        header(&rejected, "ratelimit"),
        format!(r#""user";r=0;t={retry_after}"#)
    );
    // An unlimited user, a rule in shadow mode, and two rules for one request.
    for _ in 0..10 {
        assert_eq!(running.status("admin").await, StatusCode::OK);
        assert_eq!(
            running.get("/reports", "admin").await.status(),
            StatusCode::OK
        );
    }
    for _ in 0..2 {
        assert_eq!(running.get("/orders", "bob").await.status(), StatusCode::OK);
    }
    let rejected = running.get("/orders", "bob").await;
    assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        header(&rejected, "ratelimit-policy"),
        r#""user";q=5;w=86400, "orders";q=2;w=86400"#
    );
    assert_eq!(running.status("bob").await, StatusCode::OK);
}

#[tokio::test]
#[ignore = "needs a real Envoy: run scripts/envoy"]
async fn envoy_counts_ten_thousand_users_apart_in_bounded_memory() {
    let redis = Redis::start();
    for backend in ["memory", &redis.url()] {
        let running = start(&["--backend", backend]);
        running.exhaust("ada").await;
        let before = running.resident();
        let users = (0..10_000).map(|n| format!("user-{n}"));
        let statuses = users.map(async |user| running.status(&user).await);
        let statuses: BTreeSet<_> = stream::iter(statuses).buffer_unordered(32).collect().await;
        assert_eq!(statuses, [StatusCode::OK].into());
        let ada = running.get("/", "ada").await;
        assert_eq!(
            ada.status(),
            StatusCode::TOO_MANY_REQUESTS,
            "{backend}: {ada:?}"
        );
        let growth = running.resident().saturating_sub(before);
        assert!(growth < 16 << 20, "{backend}: {growth} bytes");
    }
}

#[tokio::test]
#[ignore = "needs a real Envoy: run scripts/envoy"]
async fn the_failure_mode_decides_for_envoy_while_redis_is_down() {
    let mut redis = Redis::start();
    let url = redis.url();
    let [local, open, closed] =
        ["local", "open", "closed"].map(|mode| start(&["--backend", &url, "--failure-mode", mode]));
    local.exhaust("ada").await;
    assert_eq!(open.status("ada").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(closed.status("ada").await, StatusCode::TOO_MANY_REQUESTS);
    redis.kill();
    local.exhaust("bob").await;
    for _ in 0..10 {
        assert_eq!(open.status("dora").await, StatusCode::OK);
        // Envoy's `failure_mode_deny`.
        assert_eq!(
            closed.status("bob").await,
            StatusCode::INTERNAL_SERVER_ERROR
        );
    }
    redis.restart();
    soon(async { while closed.status("cleo").await != StatusCode::OK {} }).await;
}

#[tokio::test]
#[ignore = "needs a real Envoy: run scripts/envoy"]
async fn envoy_rejects_requests_while_the_service_is_down() {
    let mut running = start(&[]);
    assert_eq!(running.status("ada").await, StatusCode::OK);
    running.service.kill();
    assert_eq!(
        running.status("ada").await,
        StatusCode::INTERNAL_SERVER_ERROR
    );
    running.service.restart();
    soon(async { while running.status("ada").await != StatusCode::OK {} }).await;
}
