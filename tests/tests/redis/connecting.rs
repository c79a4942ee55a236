use std::time::Duration;

use tests::servers::{Redis as Server, Resp, Sentinels, free_port, free_port_of_a_node};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::Instant,
};
use tower_dist_ratelimit::{Policy, Quota};
use tower_dist_ratelimit_redis::Redis;

use crate::support::{LONG, Set, limiter, until};

async fn error(url: &str) -> String {
    Redis::connect(url).await.unwrap_err().to_string()
}

#[tokio::test]
async fn connect_reports_an_unreachable_server_and_invalid_settings() {
    let nobody = error(&format!("redis://u:secret@127.0.0.1:{}", free_port())).await;
    assert!(
        nobody.contains("cannot be reached") && !nobody.contains("secret"),
        "{nobody}"
    );
    let unknown = error("redis://no-such-host.invalid").await;
    assert!(
        unknown.contains("no-such-host.invalid:6379: cannot be reached"),
        "{unknown}"
    );
    let malformed = error("localhost:6379").await;
    assert!(malformed.contains("redis://host:port"), "{malformed}");
}

#[tokio::test]
async fn a_wrong_password_or_user_is_said_at_connect_and_the_right_one_is_taken() {
    let server = Server::with(&["--requirepass", "right"]);
    let port = server.port();
    for url in [
        "redis://:wrong@",
        "redis://nobody:right@",
        "redis://nobody@",
        "redis://",
    ] {
        let error = error(&format!("{url}127.0.0.1:{port}")).await;
        assert!(error.contains("user or password"), "{url}: {error}");
    }
    Redis::connect(&format!("redis://:right@127.0.0.1:{port}/3"))
        .await
        .unwrap();
    let mut control = Resp::connect(port).unwrap();
    control.call(&["AUTH", "right"]).unwrap();
    let rules = ["ACL", "SETUSER", "open", "on", "nopass", "~*", "+@all"];
    control.call(&rules).unwrap();
    let _open = Redis::connect(&format!("redis://open@127.0.0.1:{port}"))
        .await
        .unwrap();
    let clients = control.call(&["CLIENT", "LIST"]).unwrap().text();
    assert!(clients.contains("user=open"), "{clients}");
    let error = error(&format!("redis://:right@127.0.0.1:{port}/99")).await;
    let says = format!("127.0.0.1:{port}: answers with an error: ");
    assert!(
        error.starts_with(&says) && error.contains("DB index"),
        "{error}"
    );
}

/// A server of this version that answers each script with two numbers, and then closes the connection.
async fn stub(version: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                let said = String::from_utf8_lossy(&buffer[..n]).to_uppercase();
                let last = said.contains("EVALSHA\r\n");
                let answer = if said.contains("EVAL\r\n") || last {
                    "*2\r\n:7\r\n:9\r\n".to_owned()
                } else if said.contains("INFO\r\n") && !said.contains("SETINFO") {
                    let info = format!("redis_version:{version}\r\nrole:master\r\n");
                    format!("${}\r\n{info}\r\n", info.len())
                } else {
                    "-ERR unknown command\r\n".repeat(said.matches("CLIENT\r\n").count().max(1))
                };
                stream.write_all(answer.as_bytes()).await.unwrap();
                if last {
                    break;
                }
            }
        }
    });
    port
}

#[tokio::test]
async fn an_answer_that_arrives_with_the_end_of_a_connection_is_read_before_the_reconnect() {
    let redis = Redis::connect(&format!("redis://127.0.0.1:{}", stub("7.0.15").await))
        .await
        .unwrap();
    let set = Set::new(&redis, &[Policy::new("p", Quota::per_hour(10))]);
    for _ in 0..3 {
        let decision = until("an answer", || async { set.one("k").await.ok() }).await;
        assert_eq!(decision.remaining, 7);
    }
}

#[tokio::test]
async fn a_server_that_is_too_old_is_rejected_by_its_version() {
    let error = error(&format!("redis://127.0.0.1:{}", stub("5.0.14").await)).await;
    assert!(
        error.contains("Redis 5.0.14") && error.contains("at least 6"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_of_another_kind_than_the_url_names_is_an_error() {
    let set = tokio::task::spawn_blocking(|| Sentinels::single(&[], ""));
    let mut set = set.await.unwrap();
    let sentinel = set.url().replace("redis-sentinel", "redis");
    let sentinel = error(sentinel.trim_end_matches(&format!("/{}", Sentinels::NAME))).await;
    let says = ": is a sentinel, which needs a URL of redis-sentinel://";
    assert!(sentinel.ends_with(says), "{sentinel}");
    let server = set.servers_mut()[0].url();
    let none = error(&(server.replace("redis", "redis-sentinel") + "/limits")).await;
    assert!(none.contains("unknown command"), "{none}");
    let alone = error(&server.replace("redis", "redis-cluster")).await;
    assert!(alone.contains("cluster support disabled"), "{alone}");
}

#[tokio::test]
async fn a_sentinel_of_valkey_is_recognised_by_its_server_mode() {
    let info = "7.2.4\r\nserver_name:valkey\r\nserver_mode:sentinel";
    let error = error(&format!("redis://127.0.0.1:{}", stub(info).await)).await;
    assert!(error.contains("is a sentinel"), "{error}");
}

#[tokio::test]
async fn building_a_limiter_asks_no_server() {
    let server = Server::start();
    let redis = Redis::connect(&server.url()).await.unwrap();
    // A query to the frozen server would hang.
    server.freeze();
    let before = Instant::now();
    let policy = Policy::new("p", Quota::per_hour(1)).sliding_window_log();
    let limiter = limiter(&redis, policy);
    assert!(before.elapsed() < LONG / 2);
    server.thaw();
    until("an answer", || async { limiter.check("k").await.ok() }).await;
}

#[tokio::test]
async fn connecting_fails_after_its_timeout_if_no_server_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let started = Instant::now();
    let limit = Duration::from_millis(200);
    let error = Redis::builder(&url)
        .connect_timeout(limit)
        .connect()
        .await
        .unwrap_err();
    // The error contains no password.
    let says = format!("{}: no answer within 200ms", &url["redis://".len()..]);
    assert_eq!(error.to_string(), says);
    assert!(started.elapsed() >= limit && started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_timeout_of_zero_is_an_error() {
    let builder = || Redis::builder("redis://localhost");
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
async fn a_read_only_replica_is_rejected() {
    let primary = Server::start();
    let replica = Server::with(&["--replicaof", "127.0.0.1", &primary.port().to_string()]);
    let error = error(&replica.url()).await;
    assert!(error.contains("read-only replica"), "{error}");
}

#[tokio::test]
async fn a_prefix_that_could_move_the_tag_is_an_error() {
    let server = Server::start();
    for prefix in ["", "a{b", "}", "a b", "ü"] {
        let error = Redis::builder(&server.url())
            .prefix(prefix)
            .connect()
            .await
            .unwrap_err();
        assert!(error.to_string().contains("prefix"), "{error}");
        assert!(
            error.to_string().contains("without spaces or braces"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_connection_that_is_there_already_can_be_used() {
    let server = Server::start();
    let client = redis::Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    assert!(Redis::from_connection(connection.clone(), "{").is_err());
    let redis = Redis::from_connection(connection, "mine").unwrap();
    let limiter = limiter(&redis, Policy::new("p", Quota::per_hour(1)));
    assert!(limiter.check("k").await.unwrap().allowed);
    assert!(!limiter.check("k").await.unwrap().allowed);
    assert!(server.keys()[0].starts_with("mine:"));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_kernel_asks_whether_a_silent_server_is_still_there() {
    let server = Server::start();
    let _redis = Redis::connect(&server.url()).await.unwrap();
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X}", server.port());
    // Remote address, state (1: established), queues, and the active timer (2: keepalive).
    let kept = sockets.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, _, to, "01", _, timer, ..] if to.ends_with(&port) && timer.starts_with("02:"))
    });
    assert!(kept, "{sockets}");
}

#[test]
fn a_backend_that_outlives_its_runtime_fails_immediately_with_that_reason() {
    let server = Server::start();
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (first, other) = (runtime(), runtime());
    let redis = first.block_on(Redis::connect(&server.url())).unwrap();
    let limiter = limiter(&redis, Policy::new("p", Quota::per_hour(5)));
    assert!(other.block_on(limiter.check("k")).unwrap().allowed);
    drop(first);
    for _ in 0..2 {
        let error = other.block_on(limiter.check("k")).unwrap_err().to_string();
        assert!(
            error.ends_with("the tokio runtime that it was made on has ended"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn root_certificates_for_a_connection_that_is_not_encrypted_are_an_error() {
    let server = Server::start();
    let builder = Redis::builder(&server.url()).root_certificates("any");
    let error = builder.connect().await.unwrap_err().to_string();
    let says =
        "root_certificates: are set, but the URL is not one of rediss://, and nothing is encrypted";
    assert_eq!(error, says);
}

#[tokio::test]
async fn a_node_of_a_cluster_without_slots_is_an_error_that_says_so() {
    let on = ["--cluster-enabled", "yes"];
    let server = Server::on(free_port_of_a_node, &on);
    let url = server.url().replace("redis://", "redis-cluster://");
    let says = format!("127.0.0.1:{}: has no slots of a Cluster", server.port());
    assert_eq!(error(&url).await, says);
}
