use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use tempfile::TempDir;
use tests::servers::{
    Redis as Server, Resp, Server as Process, free_port, free_port_of_a_node, redis_server,
};
use tower_dist_ratelimit::{Policy, Quota};
use tower_dist_ratelimit_redis::Redis;

use crate::support::{limiter, until};

/// A certificate authority.
fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A TLS server with a certificate of this authority.
fn server(authority: &CertifiedIssuer<'_, KeyPair>, settings: &[&str]) -> Process {
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, authority)
        .unwrap();
    let dir = TempDir::new().unwrap();
    let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
    write("ca.pem", authority.pem());
    write("cert.pem", certificate.pem());
    write("key.pem", key.serialize_pem());
    let port = free_port_of_a_node();
    let (program, listen) = (redis_server(), port.to_string());
    let mut command = vec![
        program.as_str(),
        "--tls-port",
        &listen,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--tls-cert-file",
        "cert.pem",
        "--tls-key-file",
        "key.pem",
        "--tls-ca-cert-file",
        "ca.pem",
        "--tls-auth-clients",
        "no",
    ];
    command.extend(settings);
    Process::start_in(dir, &command, port)
}

#[tokio::test]
async fn a_connection_over_tls_trusts_the_configured_root_certificates() {
    let (ours, other) = (authority("ours"), authority("other"));
    let server = server(&ours, &["--port", "0"]);
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("rediss://{host}:{}", server.port());
        let redis = Redis::builder(&url)
            .root_certificates(ours.pem())
            .connect()
            .await
            .unwrap();
        let limiter = limiter(&redis, Policy::new("p", Quota::per_hour(5)));
        assert!(limiter.check(host).await.unwrap().allowed);
        let stranger = Redis::builder(&url)
            .root_certificates(other.pem())
            .connect()
            .await
            .unwrap_err();
        assert!(stranger.to_string().contains("TLS failed"), "{stranger}");
        let system = Redis::connect(&url).await.unwrap_err().to_string();
        assert!(system.contains("TLS"), "{system}");
    }
    let nothing = Redis::builder("rediss://localhost").root_certificates("no certificate");
    let error = nothing.connect().await.unwrap_err().to_string();
    assert!(error.contains("no root certificate"), "{error}");
}

#[tokio::test]
async fn a_cluster_is_reached_over_tls_and_so_are_the_nodes_it_names() {
    let ours = authority("ours");
    // A port without TLS, to prepare the server.
    let plain = free_port();
    let settings = ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--port"];
    let server = server(&ours, &[&settings[..], &[&plain.to_string()]].concat());
    let mut control = Resp::connect(plain).unwrap();
    let all = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];
    assert_eq!(control.call(&all).unwrap().text(), "OK");
    let url = format!("rediss-cluster://localhost:{}", server.port());
    let redis = Redis::builder(&url).root_certificates(ours.pem());
    let limiter = limiter(
        &redis.connect().await.unwrap(),
        Policy::new("p", Quota::per_hour(1)),
    );
    // The Cluster reports its state a moment after it changes.
    until("the cluster to work", || async {
        limiter.check("k").await.ok().filter(|one| one.allowed)
    })
    .await;
    assert!(!limiter.check("k").await.unwrap().allowed);
}

#[tokio::test]
async fn a_user_needs_no_more_than_the_docs_say() {
    let server = Server::start();
    let commands = "-@all +info +eval +evalsha +time +get +mget +set +del +pexpire +llen +lindex +ltrim +rpush";
    let mut rules = vec!["ACL", "SETUSER", "limits", "on", ">secret", "~rl:*"];
    rules.extend(commands.split(' '));
    server.call(&rules);
    let url = format!("redis://limits:secret@127.0.0.1:{}", server.port());
    let redis = Redis::connect(&url).await.unwrap();
    for policy in [
        Policy::new("bucket", Quota::per_hour(5)),
        Policy::new("window", Quota::per_hour(5)).sliding_window_buckets(3),
        Policy::new("log", Quota::per_hour(5)).sliding_window_log(),
    ] {
        let limiter = limiter(&redis, policy);
        for _ in 0..5 {
            assert!(limiter.check("k").await.unwrap().allowed);
        }
        assert!(!limiter.check("k").await.unwrap().allowed);
        limiter.refund("k", 2).await.unwrap();
        limiter.reset("k").await.unwrap();
    }
    let database = format!("{url}/3");
    let error = Redis::connect(&database).await.unwrap_err().to_string();
    assert!(error.contains("'select'"), "{error}");
    server.call(&["ACL", "SETUSER", "limits", "+select"]);
    Redis::connect(&database).await.unwrap();
    // A user without INFO can connect; a user without scripts, or without writes to the prefix, cannot.
    server.call(&["ACL", "SETUSER", "limits", "-info"]);
    Redis::connect(&url).await.unwrap();
    let elsewhere = Redis::builder(&url)
        .prefix("other")
        .connect()
        .await
        .unwrap();
    let error = limiter(&elsewhere, Policy::new("p", Quota::per_hour(5)))
        .check("k")
        .await
        .unwrap_err();
    let why = format!("{error}").to_lowercase();
    assert!(
        why.contains("noperm") || why.contains("permission"),
        "{error}"
    );
    server.call(&["ACL", "SETUSER", "limits", "-eval"]);
    let error = Redis::connect(&url).await.unwrap_err().to_string();
    assert!(
        error.contains("does not run scripts for this user"),
        "{error}"
    );
}

/// Runs in its own process. Its certificates come from a pipe, so reading them blocks until the test writes.
#[tokio::test]
async fn reading_the_certificates_of_the_system_blocks_no_other_task() {
    const NAME: &str = "tls::reading_the_certificates_of_the_system_blocks_no_other_task";
    const PIPE: &str = "SSL_CERT_FILE";
    const CHILD: &str = "CERTIFICATES_COME_FROM_A_PIPE";
    if std::env::var_os(CHILD).is_some() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("rediss://{}", listener.local_addr().unwrap());
        let connecting = tokio::spawn(async move { Redis::connect(&url).await });
        // The connection arrives only if another thread reads the certificates.
        let _accepted = listener.accept().await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        let pipe = std::env::var_os(PIPE).unwrap();
        let writing = tokio::task::spawn_blocking(move || std::fs::write(pipe, ""));
        assert!(connecting.await.unwrap().is_err());
        writing.await.unwrap().unwrap();
        return;
    }
    let dir = TempDir::new().unwrap();
    let pipe = dir.path().join("certificates");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let child = std::process::Command::new("timeout")
        .arg("30")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env(PIPE, &pipe)
        .env_remove("SSL_CERT_DIR")
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
}

/// Runs in its own process, whose system has no certificates.
#[tokio::test]
async fn a_system_without_certificates_is_an_error_that_says_so() {
    const NAME: &str = "tls::a_system_without_certificates_is_an_error_that_says_so";
    const URL: &str = "A_SERVER_WITH_TLS";
    if let Ok(url) = std::env::var(URL) {
        let error = Redis::connect(&url).await.unwrap_err().to_string();
        assert_eq!(error, "TLS: there is no root certificate to trust");
        return;
    }
    let server = server(&authority("ours"), &["--port", "0"]);
    let dir = TempDir::new().unwrap();
    let empty = dir.path().join("certificates");
    std::fs::write(&empty, "").unwrap();
    let child = std::process::Command::new("timeout")
        .arg("30")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env("SSL_CERT_FILE", &empty)
        .env_remove("SSL_CERT_DIR")
        .env(URL, format!("rediss://127.0.0.1:{}", server.port()))
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
}

/// The system resolves this short form of `127.0.0.1`.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_host_that_no_certificate_can_name_is_an_error_that_says_so() {
    let ours = authority("ours");
    let server = server(&ours, &["--port", "0"]);
    let host = format!("127.1:{}", server.port());
    let builder = Redis::builder(&format!("rediss://{host}")).root_certificates(ours.pem());
    let error = builder.connect().await.unwrap_err().to_string();
    let says = format!("{host}: cannot be the name in a certificate: ");
    assert!(error.starts_with(&says), "{error}");
}
