use std::time::Duration;

use tests::servers::{Memcached as Server, free_port};
use tokio::time::Instant;
use tower_dist_ratelimit::{Policy, Quota, Source};
use tower_dist_ratelimit_memcached::Memcached;

use crate::{
    stub::{greeting, opaque, stub},
    support::{Set, connect, limiter, until},
};

async fn error(url: &str) -> String {
    Memcached::connect(url).await.unwrap_err().to_string()
}

#[tokio::test]
async fn connect_reports_an_unreachable_server_and_invalid_settings() {
    let nobody = error(&format!("memcached://127.0.0.1:{}", free_port())).await;
    assert!(nobody.contains("cannot be reached"), "{nobody}");
    let unknown = error("memcached://no-such-host.invalid").await;
    assert!(
        unknown.contains("no-such-host.invalid:11211: cannot be reached"),
        "{unknown}"
    );
    let malformed = error("localhost:11211").await;
    assert!(malformed.contains("memcached://host:port"), "{malformed}");
    let server = Server::start();
    let prefix = Memcached::builder(&server.url()).prefix("a b").connect();
    let prefix = prefix.await.unwrap_err().to_string();
    assert!(prefix.contains("the prefix of keys"), "{prefix}");
    assert!(prefix.contains("without spaces"), "{prefix}");
}

#[tokio::test]
async fn a_server_without_the_needed_commands_is_rejected_with_the_reason() {
    let without_cas = Server::with(&["-C"]);
    let error_of = error(&without_cas.url()).await;
    let says = ": does not compare and swap: it was started with -C";
    assert!(error_of.ends_with(says), "{error_of}");
    for (version, says) in [
        (
            "VERSION 1.5.22\r\n",
            "is Memcached 1.5.22, but must be at least 1.6.10",
        ),
        (
            "VERSION 1.6.9\r\n",
            "is Memcached 1.6.9, but must be at least 1.6.10",
        ),
        ("ERROR\r\n", "does not say its version: ERROR"),
        ("HD\r\n", "does not speak Memcached's protocol"),
        (
            "-ERR unknown command\r\n",
            "the server does not speak the protocol: \"-ERR unknown command\"",
        ),
        ("VERSION 1.6.18\r\nHD\r\n", "sends more than one answer"),
    ] {
        let url = stub(move |_| Some(version.as_bytes().to_vec())).await;
        let error = error(&url).await;
        assert!(error.ends_with(&format!(": {says}")), "{error}");
    }
    // The version claims to be recent, but the server has no meta commands.
    let url = stub(|asked| match asked {
        "version\r\n" => greeting(asked),
        _ => Some(b"ERROR\r\n".to_vec()),
    });
    let message = error(&url.await).await;
    assert!(
        message.ends_with(": does not keep anything: ERROR"),
        "{message}"
    );
    // The server has meta commands, but its answers have no versions.
    let url = stub(|asked| match asked {
        probe if probe.starts_with("mg rl:probe ") => Some(b"VA 1 O2\r\n1\r\n".to_vec()),
        asked => greeting(asked),
    });
    let message = error(&url.await).await;
    let says = ": does not answer meta commands as Memcached does";
    assert!(message.ends_with(says), "{message}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_fails_after_the_connect_timeout() {
    let url = stub(|_| Some(Vec::new())).await;
    let started = Instant::now();
    let builder = Memcached::builder(&url).connect_timeout(Duration::from_millis(100));
    let error = builder.connect().await.unwrap_err().to_string();
    assert!(error.contains("no answer within 100ms"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn an_answer_to_another_command_ends_the_connection_and_decides_no_request() {
    for (answer, says) in [
        // Answers to another command, to no open command, and to an invalid command.
        ("VA 1 O4000000000\r\n1\r\n", "an answer to another command"),
        ("VA 1\r\n1\r\n", "an answer to another command"),
        ("HD\r\nHD\r\n", "an answer to another command"),
        ("VA 9999999999 O1\r\n", "a value of 9999999999 bytes"),
        ("VERSION 1.6.18\r\n", "an answer to another command"),
        (
            "CLIENT_ERROR bad command line format\r\n",
            "CLIENT_ERROR bad command line format",
        ),
        ("\0\r\n", "the server does not speak the protocol: \"\\0\""),
    ] {
        let url = stub(move |asked| greeting(asked).or(Some(answer.as_bytes().to_vec()))).await;
        let set = Set::new(
            &connect(&url).await,
            &[Policy::new("p", Quota::per_hour(5)).fixed_window()],
        );
        let error = set.take("k", 1).await.unwrap_err().to_string();
        assert!(error.ends_with(&format!(": {says}")), "{answer:?}: {error}");
    }
}

#[tokio::test]
async fn a_connection_that_the_server_closes_fails_its_requests_with_that_reason() {
    let url = stub(greeting).await;
    let policy = Policy::new("p", Quota::per_hour(5)).fixed_window();
    let set = Set::new(&connect(&url).await, &[policy]);
    let error = set.take("k", 1).await.unwrap_err().to_string();
    let says = "the rate limit's backend did not decide: no connection to Memcached: \
                the connection was closed";
    assert_eq!(error, says);
}

#[tokio::test]
async fn an_answer_that_does_not_fit_a_write_fails_the_request_and_says_so() {
    let values = |asked: &str| {
        greeting(asked).or_else(|| match &asked[..2] {
            "ms" => Some(format!("VA 1 O{}\r\n1\r\n", opaque(asked)).into_bytes()),
            _ => Some(format!("EN O{}\r\n", opaque(asked)).into_bytes()),
        })
    };
    let policy = Policy::new("p", Quota::per_hour(5));
    let set = Set::new(&connect(&stub(values).await).await, &[policy]);
    let error = set.take("k", 1).await.unwrap_err().to_string();
    let says = "the rate limit's backend did not decide: the answer Value does not fit a write";
    assert_eq!(error, says);
}

#[tokio::test]
async fn a_server_out_of_memory_fails_the_request_and_keeps_the_connection() {
    let full = |asked: &str| {
        greeting(asked).or_else(|| match &asked[..2] {
            "ma" => Some(b"SERVER_ERROR Out of memory allocating new item\r\n".to_vec()),
            _ => Some(format!("EN O{}\r\n", opaque(asked)).into_bytes()),
        })
    };
    let set = Set::new(
        &connect(&stub(full).await).await,
        &[Policy::new("p", Quota::per_hour(5)).fixed_window()],
    );
    for _ in 0..3 {
        let error = set.take("k", 1).await.unwrap_err().to_string();
        assert!(error.contains("Out of memory"), "{error}");
        assert_eq!(set.look("k").await.remaining, 5);
    }
}

#[tokio::test]
async fn the_connection_ends_with_the_last_handle() {
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let with = server.stat("curr_connections");
    let limiter = limiter(&memcached, Policy::new("p", Quota::per_hour(5)));
    drop(memcached);
    assert!(limiter.check("k").await.unwrap().allowed);
    drop(limiter);
    until("the connection to end", || async {
        (server.stat("curr_connections") < with).then_some(())
    })
    .await;
}

#[tokio::test]
async fn prefixes_keep_services_apart() {
    let server = Server::start();
    let policy = || Policy::new("a b", Quota::per_hour(1));
    let of = |prefix: &str| Memcached::builder(&server.url()).prefix(prefix).connect();
    let (one, other) = (of("one").await.unwrap(), of("other").await.unwrap());
    for memcached in [&one, &other] {
        let limiter = limiter(memcached, policy());
        assert!(limiter.check("k").await.unwrap().allowed);
        assert!(!limiter.check("k").await.unwrap().allowed);
    }
    let keys = server.keys();
    assert!(keys.len() == 2, "{keys:?}");
    assert!(keys[0].starts_with("one:") && keys[1].starts_with("other:"));
}

#[tokio::test]
async fn a_timeout_of_zero_is_an_error() {
    let builder = || Memcached::builder("memcached://localhost");
    let none = Duration::ZERO;
    for (builder, setting) in [
        (builder().connect_timeout(none), "connect_timeout"),
        (builder().answer_timeout(none), "answer_timeout"),
    ] {
        let error = builder.connect().await.unwrap_err().to_string();
        assert_eq!(error, format!("{setting}: is 0ns, but must be above 0"));
    }
}

#[tokio::test]
async fn timeouts_can_be_as_long_as_a_duration() {
    let server = Server::start();
    let builder = Memcached::builder(&server.url()).connect_timeout(Duration::MAX);
    let memcached = builder.answer_timeout(Duration::MAX).connect().await;
    let limiter = limiter(&memcached.unwrap(), Policy::new("p", Quota::per_hour(5)));
    for _ in 0..2 {
        let decision = limiter.check("k").await.unwrap();
        assert_eq!(decision.source, Source::Backend);
    }
}

#[test]
fn after_the_end_of_the_runtime_waiting_and_new_requests_fail_immediately() {
    let server = Server::start();
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (one, other) = (runtime(), runtime());
    let set = one.block_on(async {
        let policy = Policy::new("p", Quota::per_hour(5));
        Set::new(&connect(&server.url()).await, &[policy])
    });
    server.freeze();
    let waits = other.spawn({
        let set = set.clone();
        async move { set.take("k", 1).await }
    });
    // Long enough for the request to be sent, and shorter than the timeout of an answer.
    other.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
    drop(one);
    other.block_on(async {
        for error in [waits.await.unwrap(), set.take("k", 1).await] {
            let error = error.unwrap_err().to_string();
            let message = "the runtime that it was made on has ended";
            assert!(error.contains(message), "{error}");
        }
    });
    server.thaw();
}
