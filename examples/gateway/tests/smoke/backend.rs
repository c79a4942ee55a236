//! Limits that a backend counts.

use std::time::Duration;

use axum::http::{Request, StatusCode};
use tests::servers::{Cluster, Memcached, Redis, Sentinels, free_port};
use tokio::time::Instant;

use crate::client::{header, send, text};
use crate::process::{Gateway, MACHINE, command, output};

/// A backend on a busy machine may answer late. Most of these tests do not concern that case.
const PATIENT: [&str; 2] = ["--backend-timeout", "10000"];

async fn ask(gateway: &Gateway, key: &str) -> axum::http::Response<hyper::body::Incoming> {
    let url = format!("http://{}/", gateway.addr);
    send(Request::get(url).header("x-api-key", key), "").await
}

/// Two gateways on this backend together admit one limit.
async fn two_gateways_share_a_limit(url: &str) {
    let (burst, limit) = (20, 1);
    let args = [
        &["--backend", url, "--limit", "1", "--burst", "20"][..],
        &["--profile", "tail"],
        &PATIENT[..],
    ]
    .concat();
    let gateways = [Gateway::start(&args), Gateway::start(&args)];
    let start = Instant::now();
    let mut admitted = [0, 0];
    for n in 0..2 * burst {
        let response = ask(&gateways[n % 2], "one").await;
        admitted[n % 2] += usize::from(response.status() == StatusCode::OK);
        if response.status() != StatusCode::OK {
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "{url}");
        }
    }
    let refilled = limit * usize::try_from(start.elapsed().as_secs()).unwrap();
    let total = admitted[0] + admitted[1];
    assert!(
        (burst..=burst + refilled).contains(&total),
        "{url}: {admitted:?}"
    );
    assert!(admitted[0] > 0 && admitted[1] > 0, "{url}: {admitted:?}");
    // Another client has a separate limit.
    assert_eq!(ask(&gateways[0], "other").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn gateways_on_one_redis_share_a_limit() {
    let _busy = MACHINE.read().await;
    two_gateways_share_a_limit(&Redis::start().url()).await;
}

#[tokio::test]
async fn gateways_on_a_cluster_share_a_limit() {
    let _busy = MACHINE.read().await;
    two_gateways_share_a_limit(&Cluster::start().url()).await;
}

#[tokio::test]
async fn gateways_on_the_primary_of_sentinels_share_a_limit() {
    let _busy = MACHINE.read().await;
    two_gateways_share_a_limit(&Sentinels::start().url()).await;
}

#[tokio::test]
async fn gateways_on_one_memcached_share_a_limit() {
    let _busy = MACHINE.read().await;
    two_gateways_share_a_limit(&Memcached::start().url()).await;
}

#[tokio::test]
async fn a_gateway_with_leases_sends_few_requests_to_the_backend() {
    let _busy = MACHINE.read().await;
    let server = Redis::start();
    let url = server.url();
    let args = ["--backend", &url, "--lease", "10000", "--profile", "tail"];
    let limits = ["--limit", "1000", "--burst", "1000"];
    let gateway = Gateway::start(&[&args[..], &limits, &PATIENT].concat());
    for _ in 0..300 {
        assert_eq!(ask(&gateway, "busy").await.status(), StatusCode::OK);
    }
    let stats = server.call(&["INFO", "commandstats"]).text();
    let scripts = stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_eval"));
    let calls = scripts.filter_map(|line| line.split(['=', ',']).nth(1)?.parse::<u32>().ok());
    let calls: u32 = calls.sum();
    assert!((1..100).contains(&calls), "{calls}");
}

/// A gateway with leased tokens of one client, which sent [`SPENT`] requests.
#[cfg(unix)]
async fn with_leased_tokens(url: &str) -> Gateway {
    let args = ["--backend", url, "--lease", "10000", "--profile", "tail"];
    let limits = [
        "--limit",
        "1",
        "--burst",
        "10000",
        "--backend-timeout",
        "1000",
    ];
    let gateway = Gateway::logged(&[&args[..], &limits].concat());
    for _ in 0..SPENT {
        assert_eq!(ask(&gateway, "busy").await.status(), StatusCode::OK);
    }
    gateway
}

#[cfg(unix)]
const SPENT: usize = 200;

#[cfg(unix)]
#[tokio::test]
async fn a_stopped_gateway_returns_its_unused_leased_tokens() {
    let _busy = MACHINE.read().await;
    let server = Redis::start();
    let mut stopped = with_leased_tokens(&server.url()).await;
    stopped.signal("TERM");
    assert_eq!(
        stopped.log_line().await,
        "gateway: stopping; a second signal stops immediately"
    );
    assert_eq!(stopped.log_line().await, "", "nothing fails");
    assert_eq!(stopped.wait().code(), Some(0));
    let limits = ["--limit", "1", "--burst", "10000", "--profile", "tail"];
    let url = server.url();
    let next = Gateway::start(&[&["--backend", &url][..], &limits, &PATIENT].concat());
    let response = ask(&next, "busy").await;
    let remaining = header(response.headers(), "ratelimit");
    let remaining = remaining
        .split(['=', ';'])
        .nth(2)
        .and_then(|tokens| tokens.parse().ok());
    // One request of the next gateway, and the tokens that the bucket regains in the lease time and the timeout.
    let spent = SPENT + 1 + 11;
    let remaining: usize = remaining.unwrap_or_else(|| panic!("{:?}", response.headers()));
    assert!(remaining >= 10_000 - spent, "{remaining}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_gateway_that_cannot_return_its_leased_tokens_logs_why_and_stops() {
    let _busy = MACHINE.read().await;
    let server = Redis::start();
    let mut gateway = with_leased_tokens(&server.url()).await;
    drop(server);
    gateway.signal("TERM");
    assert_eq!(
        gateway.log_line().await,
        "gateway: stopping; a second signal stops immediately"
    );
    let line = gateway.log_line().await;
    assert!(
        line.starts_with("gateway: unused leased tokens are lost: "),
        "{line}"
    );
    assert_eq!(gateway.wait().code(), Some(0));
}

#[tokio::test]
async fn gateways_in_memory_each_have_the_limit() {
    let _busy = MACHINE.read().await;
    let args = ["--limit", "1", "--burst", "3", "--profile", "tail"];
    for gateway in [Gateway::start(&args), Gateway::start(&args)] {
        for _ in 0..3 {
            assert_eq!(ask(&gateway, "one").await.status(), StatusCode::OK);
        }
    }
}

#[tokio::test]
async fn the_first_line_names_the_backend_without_its_password() {
    let _busy = MACHINE.read().await;
    let server = Redis::with(&["--requirepass", "secret"]);
    let host = format!("127.0.0.1:{}", server.port());
    let gateway = Gateway::start(&["--backend", &format!("redis://:secret@{host}/2")]);
    let line = &gateway.first_line;
    assert!(
        line.ends_with(&format!(", limits counted in redis://{host}/2\n")),
        "{line}"
    );
}

#[tokio::test]
async fn a_backend_that_cannot_be_used_is_named_on_stderr() {
    let _busy = MACHINE.read().await;
    let server = Redis::with(&["--requirepass", "secret"]);
    let locked = format!("redis://:wrong@127.0.0.1:{}", server.port());
    let clusters = format!("redis-cluster://127.0.0.1:{}", server.port());
    let memcached = Memcached::start();
    let other = format!("redis://127.0.0.1:{}", memcached.port());
    // Memcached closes a connection that begins with TLS. A Redis server without TLS waits for the end of the line, as
    // this listener does.
    let encrypted = other.replace("redis://", "rediss://");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("rediss://{}", listener.local_addr().unwrap());
    for (url, code, reason) in [
        (&*locked, 1, "does not accept this user or password"),
        (&clusters, 1, "--backend: "),
        (&other, 1, "does not speak Redis's protocol"),
        (
            &encrypted,
            1,
            "; rediss:// is for a server that encrypts, with a certificate that this machine trusts; \
             for one that does not encrypt it is redis://\n",
        ),
        (
            &silent,
            1,
            ": no answer within 5s; rediss:// is for a server that encrypts, \
             with a certificate that this machine trusts; \
             for one that does not encrypt it is redis://\n",
        ),
        ("redis://", 1, "must name a host"),
        ("redis-sentinel://a", 1, "must name the primary"),
        (
            "memory://",
            2,
            "expected memory, redis, or the URL of a backend: redis://host:port",
        ),
        (
            "127.0.0.1:6379",
            2,
            "expected memory, redis, or the URL of a backend: redis://host:port",
        ),
    ] {
        let output = output(&["--listen", "127.0.0.1:0", "--backend", url]).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{url}: {stderr}");
        assert_eq!(output.stdout, b"", "{url}");
        // clap reports a wrong option with a pointer to the help.
        let begin = if code == 1 { "gateway: " } else { "error: " };
        assert!(
            stderr.starts_with(begin) && stderr.contains(reason),
            "{url}: {stderr}"
        );
        assert!(code == 2 || stderr.lines().count() == 1, "{url}: {stderr}");
        assert!(!stderr.contains("wrong"), "{stderr}");
    }
}

#[tokio::test]
async fn without_a_redis_server_to_start_the_gateway_names_the_package() {
    let mut gateway = command(&["--listen", "127.0.0.1:0", "--backend", "redis"]);
    let output = tokio::time::timeout(Duration::from_secs(60), gateway.env("PATH", "").output());
    let output = output.await.expect("the gateway ends").unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(output.stdout, b"");
    assert_eq!(
        stderr,
        "gateway: --backend redis needs redis-server on the PATH \
         (apt install redis-server, brew install redis)\n"
    );
}

/// Returns what a gateway writes to stderr that cannot start this program as its `redis-server`.
#[cfg(unix)]
async fn error_with_redis_server(program: &str, mode: u32) -> String {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("redis-server");
    std::fs::write(&file, program).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    let mut gateway = command(&["--listen", "127.0.0.1:0", "--backend", "redis"]);
    let output = gateway.env("PATH", dir.path()).output();
    let output = tokio::time::timeout(Duration::from_secs(60), output).await;
    let output = output.expect("the gateway ends").unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(output.stdout, b"");
    String::from_utf8(output.stderr).unwrap()
}

#[cfg(unix)]
#[tokio::test]
async fn a_redis_server_that_cannot_be_started_is_an_error_that_names_the_cause() {
    for (program, mode, says) in [
        (
            "#!/bin/sh\n",
            0o600,
            "gateway: redis-server cannot be started: Permission denied (os error 13)\n",
        ),
        (
            "#!/bin/sh\nexit 1\n",
            0o700,
            "gateway: redis-server ends as soon as it is started\n",
        ),
        (
            "#!/bin/sh\nexec /bin/sleep 60\n",
            0o700,
            "gateway: redis-server does not listen after 10 s\n",
        ),
    ] {
        assert_eq!(error_with_redis_server(program, mode).await, says);
    }
}

#[tokio::test]
async fn without_certificates_on_the_system_an_encrypted_backend_names_the_reason() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rediss://{}", server.local_addr().unwrap());
    let mut gateway = command(&["--listen", "127.0.0.1:0", "--backend", &url]);
    let output = gateway
        .env("SSL_CERT_FILE", "/missing.pem")
        .env_remove("SSL_CERT_DIR");
    let output = tokio::time::timeout(Duration::from_secs(60), output.output()).await;
    let output = output.expect("the gateway ends").unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.starts_with("gateway: --backend: TLS: the system's certificates cannot be read: ")
            && stderr.contains("/missing.pem"),
        "{stderr}"
    );
}

#[tokio::test]
async fn a_gateway_starts_while_its_backend_is_down_and_counts_there_as_soon_as_it_is_up() {
    let _busy = MACHINE.read().await;
    let mut server = Redis::start();
    let redis = server.url();
    server.kill();
    let memcached = format!("memcached://127.0.0.1:{}", free_port());
    for (url, command) in [
        (&redis, "redis-server --port N"),
        (&memcached, "memcached -p N"),
    ] {
        let mut gateway = Gateway::logged(&["--backend", url, "--profile", "tail"]);
        let said = gateway.log_line().await;
        let advice =
            format!("start it there (one server to try: {command}), or leave --backend out");
        assert!(said.contains(&advice), "{said}");
        assert!(
            said.ends_with("; until then this gateway decides locally"),
            "{said}"
        );
        assert_eq!(ask(&gateway, "early").await.status(), StatusCode::OK);
    }
    // A server that accepts connections and does not answer, as a frozen one does.
    let frozen = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", frozen.local_addr().unwrap());
    let mut gateway = Gateway::logged(&["--backend", &url, "--profile", "tail"]);
    let said = gateway.log_line().await;
    let decides = ": no answer within 5s; until then this gateway decides locally";
    assert!(said.ends_with(decides), "{said}");
    assert_eq!(ask(&gateway, "early").await.status(), StatusCode::OK);
    // A token refills after a second, so that the key still exists when the test looks for it.
    let limits = ["--limit", "1", "--burst", "1000"];
    let args = ["--backend", &redis, "--profile", "tail"];
    let gateway = Gateway::start(&[&args[..], &limits].concat());
    assert_eq!(ask(&gateway, "early").await.status(), StatusCode::OK);
    server.restart();
    let counted = async {
        while server.keys().is_empty() {
            assert_eq!(ask(&gateway, "late").await.status(), StatusCode::OK);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let counted = tokio::time::timeout(Duration::from_secs(20), counted).await;
    assert!(counted.is_ok(), "the backend never counts");
}

#[tokio::test]
async fn a_gateway_of_its_own_decides_with_the_whole_of_every_limit_while_its_backend_is_down() {
    let _busy = MACHINE.read().await;
    let mut server = Redis::start();
    let mut gateway = Gateway::logged(&["--backend", &server.url(), "--profile", "tail"]);
    assert_eq!(ask(&gateway, "before").await.status(), StatusCode::OK);
    server.kill();
    for _ in 0..20 {
        ask(&gateway, "away").await;
    }
    let opened = gateway.log_line().await;
    let decides = "; circuit opened: this gateway decides locally, with the whole of every limit";
    assert!(opened.ends_with(decides), "{opened}");
}

/// Sends requests until a response is as expected.
async fn until(
    gateway: &Gateway,
    key: &str,
    expected: impl Fn(StatusCode) -> bool,
) -> axum::http::Response<hyper::body::Incoming> {
    let ask = async {
        loop {
            let response = ask(gateway, key).await;
            if expected(response.status()) {
                return response;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let answer = tokio::time::timeout(Duration::from_secs(20), ask).await;
    answer.unwrap_or_else(|_| panic!("no such answer"))
}

#[tokio::test]
async fn while_the_backend_is_down_each_gateway_admits_its_share_and_logs_it_once() {
    let _busy = MACHINE.read().await;
    let mut server = Redis::start();
    let url = server.url();
    let args = [
        "--backend",
        &url,
        "--fleet",
        "4",
        "--limit",
        "1",
        "--burst",
        "40",
    ];
    let mut gateway = Gateway::logged(&[&args, &["--profile", "tail"][..]].concat());
    assert_eq!(ask(&gateway, "before").await.status(), StatusCode::OK);

    server.kill();
    let start = Instant::now();
    let mut admitted = 0;
    let refusal = loop {
        let response = ask(&gateway, "away").await;
        if response.status() != StatusCode::OK {
            break response;
        }
        assert!(header(response.headers(), "ratelimit").starts_with("\"per-client\";r="));
        admitted += 1;
    };
    // A quarter of the burst, and the refilled tokens: at least one token per second of the limit remains.
    let most = 10 + 1 + start.elapsed().as_secs();
    assert!(
        (10..=most).contains(&admitted),
        "{admitted} passed, at most {most}"
    );
    assert_eq!(refusal.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(header(refusal.headers(), "retry-after"), "1");
    let problem = text(refusal).await;
    assert!(
        problem.contains("http-problem-types#temporary-reduced-capacity"),
        "{problem}"
    );
    let opened = gateway.log_line().await;
    assert!(
        opened.starts_with("gateway: the rate limit's backend did not decide: ")
            && opened.ends_with(
                "; circuit opened: this gateway decides locally, with a share of 1/4 of every limit"
            ),
        "{opened}"
    );

    server.restart();
    // Its rejections are 429. The first one comes after 40 requests.
    let refusal = until(&gateway, "again", |status| {
        status == StatusCode::TOO_MANY_REQUESTS
    })
    .await;
    assert_eq!(
        header(refusal.headers(), "ratelimit"),
        "\"per-client\";r=0;t=1"
    );
    assert_eq!(
        gateway.log_line().await,
        "gateway: rate-limit backend available again: circuit closed"
    );
    gateway.signal("TERM");
    assert_eq!(
        gateway.log_line().await,
        "gateway: stopping; a second signal stops immediately"
    );
}
