//! Start and stop of the gateway.

use std::net::TcpListener;

use crate::process::{Gateway, output, unused_addr};

#[tokio::test]
async fn an_address_in_use_is_one_line_on_stderr() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (args, reason) in [
        (&["--listen", &taken][..], "in use"),
        (&["--budget", "11"], "budget"),
    ] {
        let output = output(args).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{args:?}");
        assert_eq!(output.stdout, b"", "{args:?}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(
            stderr.starts_with("gateway: ") && stderr.contains(reason),
            "{args:?}: {stderr}"
        );
    }
}

#[tokio::test]
async fn a_bad_option_is_named_with_the_way_to_the_help() {
    for (args, reason) in [
        (
            &["--listen", "nowhere"][..],
            "invalid value 'nowhere' for '--listen",
        ),
        (
            &["--upstream", "https://a"],
            "https is not supported, only http:// upstreams are",
        ),
        (&["--upstream", "a:b:c"], "--upstream"),
        (
            &["--upstream", "http://"],
            "expected http://host or http://host:port",
        ),
        (
            &["--admin", "nowhere"],
            "expected an address such as 127.0.0.1:3001, or off",
        ),
        (&["--profile", "good"], "possible values: default, tail"),
        (&["--frobnicate"], "'--frobnicate'"),
        (&["--hedge-at", "0"], "from 1 to 3600000"),
        (&["--deadline", "0"], "from 1 to 3600000"),
        (&["--attempts", "0"], "attempts"),
        (&["--burst", "0"], "burst"),
        (
            &["--lease", "9"],
            "'--lease <MS>': expected milliseconds, from 10 to 60000",
        ),
        (&["--fleet", "0"], "'--fleet <N>'"),
        (&["--limit", "-1"], "invalid value '-1' for '--limit <N>'"),
        (&["--backend-timeout", "60001"], "from 1 to 60000"),
        (&["demo", "--requests", "0"], "--requests"),
        (&["demo", "--load", "-1"], "invalid value '-1' for '--load"),
        (&["demo", "--listen", "127.0.0.1:0"], "--listen"),
        (&["--fleets", "2"], "a similar argument exists: '--fleet'"),
        (&["demmo"], "a similar subcommand exists: 'demo'"),
        (&["--frobnicate"], "Usage: gateway"),
    ] {
        let output = output(args).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(output.stdout, b"", "{args:?}");
        for text in [reason, "try '--help'"] {
            assert!(stderr.contains(text), "{args:?}: {stderr}");
        }
    }
}

#[tokio::test]
async fn the_option_version_prints_the_version() {
    for args in [&["--version"][..], &["demo", "--version"]] {
        let output = output(args).await;
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{args:?}");
        assert!(stdout.contains(env!("CARGO_PKG_VERSION")), "{stdout}");
    }
}

#[tokio::test]
async fn the_hint_names_the_built_in_upstream_only_where_there_is_one() {
    let built_in = "the built-in upstream shows";
    assert!(Gateway::start(&[]).hint().contains(built_in));
    let hint = Gateway::before(unused_addr(), &[]).hint();
    assert!(hint.contains("curl -i http://127.0.0.1:"), "{hint}");
    assert!(!hint.contains("built-in"), "{hint}");
}

#[tokio::test]
async fn help_names_the_options() {
    let output = output(&["--help"]).await;
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for option in [
        "--listen",
        "--upstream",
        "--profile",
        "--limit",
        "--hedge-at",
        "demo",
    ] {
        assert!(stdout.contains(option), "{option}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_signal_lets_the_request_in_flight_finish() {
    use std::sync::Arc;

    use axum::Router;
    use tokio::sync::Notify;

    use crate::client::{get, serve, text};

    for signal in ["TERM", "INT"] {
        let (arrived, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, wait) = (arrived.clone(), release.clone());
        let slow = async move || {
            tell.notify_one();
            wait.notified().await;
            "done"
        };
        let upstream = serve(Router::new().fallback(slow)).await;
        let patient = [
            "--attempt-timeout",
            "60000",
            "--hedge-at",
            "60000",
            "--deadline",
            "60000",
        ];
        let mut gateway = Gateway::before(upstream, &patient);
        let url = format!("http://{}/", gateway.addr);
        let answer = tokio::spawn(get(url));
        arrived.notified().await;
        gateway.signal(signal);
        // The listener is closed, but the connection that waits for its response still exists.
        while tokio::net::TcpStream::connect(gateway.addr).await.is_ok() {
            tokio::task::yield_now().await;
        }
        release.notify_one();
        assert_eq!(text(answer.await.unwrap()).await, "done");
        assert!(gateway.wait().success(), "{signal}");
    }
}

/// A gateway with a request that its upstream never answers, after the first signal.
#[cfg(unix)]
async fn stopping_with_a_request_in_flight() -> Gateway {
    use std::sync::Arc;

    use axum::Router;
    use tokio::sync::Notify;

    use crate::client::{get, serve};

    let arrived = Arc::new(Notify::new());
    let tell = arrived.clone();
    let stuck = async move || {
        tell.notify_one();
        std::future::pending::<()>().await;
    };
    let upstream = serve(Router::new().fallback(stuck)).await;
    let url = format!("http://{upstream}");
    let mut gateway = Gateway::logged(&[
        "--upstream",
        &url,
        "--attempt-timeout",
        "60000",
        "--hedge-at",
        "60000",
        "--deadline",
        "60000",
    ]);
    tokio::spawn(get(format!("http://{}/", gateway.addr)));
    arrived.notified().await;
    gateway.signal("TERM");
    assert_eq!(
        gateway.log_line().await,
        "gateway: stopping; a second signal stops immediately"
    );
    // The listener is closed when the gateway drains. It then receives the next signal.
    while tokio::net::TcpStream::connect(gateway.addr).await.is_ok() {
        tokio::task::yield_now().await;
    }
    gateway
}

#[cfg(unix)]
#[tokio::test]
async fn a_second_signal_stops_immediately() {
    let mut gateway = stopping_with_a_request_in_flight().await;
    let start = tokio::time::Instant::now();
    gateway.signal("TERM");
    assert_eq!(
        gateway.log_line().await,
        "gateway: stopped with requests in flight"
    );
    assert!(gateway.wait().success());
    assert!(start.elapsed() < std::time::Duration::from_secs(5));
}

#[cfg(unix)]
#[tokio::test]
async fn ten_seconds_after_a_signal_the_gateway_gives_up_on_requests_in_flight() {
    let mut gateway = stopping_with_a_request_in_flight().await;
    assert_eq!(
        gateway.log_line().await,
        "gateway: gave up on requests still in flight after 10 s"
    );
    assert!(gateway.wait().success());
}
