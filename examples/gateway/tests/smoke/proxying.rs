//! The gateway behaves as an HTTP proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use axum::routing::get as route;
use futures::StreamExt as _;
use http_body_util::BodyExt;
use tokio::sync::Notify;

use crate::client::{assert_problem, get, header, raw, send, serve, text};
use crate::process::{Gateway, unused_addr};

/// Answers with the request it saw.
async fn echo(request: Request<Body>) -> String {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut text = format!("{} {} {:?}\n", head.method, head.uri, head.version);
    for (name, value) in &head.headers {
        text += &format!("{name}: {}\n", value.to_str().unwrap());
    }
    text + "\n" + std::str::from_utf8(&body).unwrap()
}

#[tokio::test]
async fn method_path_query_headers_and_body_arrive() {
    let upstream = serve(Router::new().fallback(echo)).await;
    let gateway = Gateway::before(upstream, &[]);
    let request = Request::patch(format!("http://{}/a%20b/c?d=e&f", gateway.addr))
        .header("x-mine", "1")
        .header("x-private", "1")
        .header("connection", "x-private")
        .header("te", "trailers")
        .header("x-forwarded-for", "192.0.2.1");
    let seen = text(send(request, "hello").await).await;
    let (head, body) = seen.split_once("\n\n").unwrap();
    let mut lines: Vec<_> = head.lines().collect();
    assert_eq!(lines.remove(0), "PATCH /a%20b/c?d=e&f HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: {upstream}");
    let asked_host = format!("x-forwarded-host: {}", gateway.addr);
    let expected = [
        "content-length: 5",
        &host,
        "via: 1.1 gateway",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-for: 192.0.2.1",
        &asked_host,
        "x-mine: 1",
    ];
    assert_eq!(lines, expected);
    assert_eq!(body, "hello");
}

#[tokio::test]
async fn unusual_request_targets_are_forwarded_to_the_upstream_only() {
    let upstream = serve(Router::new().fallback(echo)).await;
    let gateway = Gateway::before(upstream, &[]);
    for (target, expected) in [
        ("GET http://other.example/x?y HTTP/1.1", "GET /x?y HTTP/1.1"),
        ("OPTIONS * HTTP/1.1", "OPTIONS * HTTP/1.1"),
        ("GET /old HTTP/1.0", "GET /old HTTP/1.1"),
    ] {
        let request = format!("{target}\r\nhost: other.example\r\nconnection: close\r\n\r\n");
        let answer = raw(gateway.addr, &request).await;
        assert!(answer.contains(expected), "{target}: {answer}");
        assert!(
            answer.contains(&format!("\nhost: {upstream}")),
            "{target}: {answer}"
        );
    }
}

#[tokio::test]
async fn connection_headers_of_the_upstream_stay_there() {
    let answer = [
        ("connection", "x-private"),
        ("x-private", "1"),
        ("keep-alive", "timeout=5"),
        ("x-mine", "1"),
    ];
    let upstream =
        serve(Router::new().fallback(async move || (StatusCode::IM_A_TEAPOT, answer, "tea"))).await;
    let gateway = Gateway::before(upstream, &[]);
    let response = get(format!("http://{}/", gateway.addr)).await;
    assert_eq!(response.status(), StatusCode::IM_A_TEAPOT);
    let headers = response.headers();
    assert_eq!(header(headers, "x-mine"), "1");
    for stripped in ["connection", "x-private", "keep-alive"] {
        assert_eq!(header(headers, stripped), "");
    }
    assert_eq!(text(response).await, "tea");
}

#[tokio::test]
async fn responses_stream_through() {
    let more = Arc::new(Notify::new());
    let wait = more.clone();
    let upstream = serve(Router::new().route(
        "/",
        route(async move || {
            let rest = async move {
                wait.notified().await;
                Ok::<_, std::io::Error>(Bytes::from("second"))
            };
            let first = futures::stream::iter([Ok(Bytes::from("first"))]);
            Body::from_stream(first.chain(futures::stream::once(rest)))
        }),
    ))
    .await;
    let gateway = Gateway::before(upstream, &[]);
    let mut body = get(format!("http://{}/", gateway.addr)).await.into_body();
    let frame = body.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "first");
    more.notify_one();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "second");
}

#[tokio::test]
async fn request_bodies_stream_and_arrive_whole() {
    let upstream = serve(Router::new().fallback(|body: Bytes| async { body })).await;
    let gateway = Gateway::before(upstream, &[]);
    for length in [0, 1, 64 * 1024, 1_000_000] {
        let body: Vec<u8> = (0..=250).cycle().take(length).collect();
        let post = Request::post(format!("http://{}/", gateway.addr));
        let response = send(post, body.clone()).await;
        let echoed = response.into_body().collect().await.unwrap();
        assert!(echoed.to_bytes() == body, "{length}");
    }
    // A body of unknown length.
    let chunk = "8001\r\n".to_owned() + &"x".repeat(0x8001) + "\r\n";
    let request =
        "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_owned();
    let answer = raw(gateway.addr, &(request + &chunk + &chunk + "0\r\n\r\n")).await;
    assert!(answer.ends_with(&"x".repeat(2 * 0x8001)));
}

/// Up to 64 KiB of a streaming body are recorded.
#[tokio::test]
async fn a_body_that_streams_is_sent_again() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    let requests = Arc::new(AtomicU32::new(0));
    let count = requests.clone();
    let fails_at_first = async move |body: Bytes| match count.fetch_add(1, Ordering::Relaxed) {
        0 => Err(StatusCode::SERVICE_UNAVAILABLE),
        _ => Ok(body),
    };
    let upstream = serve(Router::new().fallback(fails_at_first)).await;
    let gateway = Gateway::before(upstream, &["--hedge-at", "60000"]);
    let chunk = "1000\r\n".to_owned() + &"x".repeat(0x1000) + "\r\n";
    let request =
        "PUT / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let request = request.to_owned() + &chunk + &chunk + "0\r\n\r\n";
    let answer = raw(gateway.addr, &request).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.ends_with(&"x".repeat(2 * 0x1000)));
    assert_eq!(requests.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn connect_and_upgrade_are_501() {
    let gateway = Gateway::start(&[]);
    for request in [
        "CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\nconnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n\r\n",
    ] {
        let answer = raw(gateway.addr, request).await;
        assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
        assert!(
            answer.contains("this gateway forwards neither CONNECT nor protocol upgrades"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn an_unreachable_upstream_is_502() {
    let gateway = Gateway::before(unused_addr(), &[]);
    let response = get(format!("http://{}/", gateway.addr)).await;
    let reason = "no answer from the upstream: ";
    assert_problem(response, StatusCode::BAD_GATEWAY, reason).await;
}

#[tokio::test]
async fn a_silent_upstream_is_504() {
    let upstream = serve(Router::new().fallback(std::future::pending::<()>)).await;
    let gateway = Gateway::before(upstream, &["--attempt-timeout", "50"]);
    let response = get(format!("http://{}/", gateway.addr)).await;
    assert_problem(
        response,
        StatusCode::GATEWAY_TIMEOUT,
        "the upstream did not answer in time",
    )
    .await;
}

/// The upstream answers the first attempt with a 503, and never answers its hedge.
#[tokio::test]
async fn a_stalled_hedge_does_not_hide_the_503_of_the_first_attempt() {
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&requests);
    let answer = move || {
        let number = seen.fetch_add(1, Ordering::Relaxed);
        async move {
            if number > 0 {
                return std::future::pending().await;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "3600")])
        }
    };
    let upstream = serve(Router::new().fallback(answer)).await;
    let gateway = Gateway::before(upstream, &["--hedge-at", "50"]);
    let response = get(format!("http://{}/", gateway.addr)).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "3600");
    assert_eq!(requests.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn an_upstream_that_switches_protocols_unasked_is_502() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 4096]).await;
            let answer =
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    let gateway = Gateway::before(upstream, &[]);
    let response = get(format!("http://{}/", gateway.addr)).await;
    let reason = "the upstream switched protocols unasked";
    assert_problem(response, StatusCode::BAD_GATEWAY, reason).await;
}

/// Each attempt may take an hour.
#[tokio::test]
async fn a_request_that_takes_longer_than_the_deadline_is_504() {
    let upstream = serve(Router::new().fallback(std::future::pending::<()>)).await;
    let patient = ["--attempt-timeout", "3600000", "--hedge-at", "3600000"];
    let args = [&patient[..], &["--deadline", "50"]].concat();
    let gateway = Gateway::before(upstream, &args);
    let response = get(format!("http://{}/", gateway.addr)).await;
    assert_problem(
        response,
        StatusCode::GATEWAY_TIMEOUT,
        "the upstream did not answer in time",
    )
    .await;
}

/// If a message has both, the encoding counts.
#[tokio::test]
async fn a_response_with_a_length_and_an_encoding_arrives_whole() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let _ = socket.read(&mut [0; 4096]).await;
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n\
                      5\r\nhello\r\n0\r\n\r\n";
        socket.write_all(answer.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    let gateway = crate::process::Gateway::before(upstream, &[]);
    let response = crate::client::get(format!("http://{}/", gateway.addr)).await;
    assert_eq!(crate::client::text(response).await, "hello");
}
