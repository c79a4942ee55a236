//! The cost of these crates' features for a consumer: no protocol in the servers of the same build, and few crates.
//!
//! Cargo unifies features: one dependency on `hyper-util` with `http2` makes every server that `axum::serve` runs accept
//! HTTP/2 without TLS.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The repository's root.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The packages in the build of a consumer with these `dependencies`, the consumer left out: a line each of name,
/// version and features.
fn packages(dependencies: &str) -> BTreeSet<String> {
    let consumer = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| {
        std::fs::write(consumer.path().join(name), content).unwrap();
    };
    let manifest = format!(
        "[package]\nname = \"consumer\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [lib]\npath = \"lib.rs\"\n[workspace]\n[dependencies]\n{dependencies}\n"
    );
    write("Cargo.toml", &manifest);
    write("lib.rs", "");
    // The versions that this build uses, which Cargo has downloaded.
    std::fs::copy(
        root().join("Cargo.lock"),
        consumer.path().join("Cargo.lock"),
    )
    .unwrap();
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--edges", "normal", "--prefix", "none"])
        .args(["--no-dedupe", "--format", "{p} {f}"])
        .current_dir(consumer.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{dependencies}: {stderr}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    tree.lines().skip(1).map(str::to_owned).collect()
}

/// The protocols of hyper in a package that depends on axum with `axum_features` and on `dependency`.
fn protocols(axum_features: &str, dependency: &str) -> BTreeSet<String> {
    let axum = format!(
        "axum = {{ version = \"0.8\", default-features = false, features = [\"tokio\", {axum_features}] }}"
    );
    let packages = packages(&format!("{axum}\n{dependency}"));
    let of_hyper = packages.iter().filter(|line| {
        ["hyper v", "hyper-util v"]
            .iter()
            .any(|name| line.starts_with(name))
    });
    let features = of_hyper.flat_map(|line| line.split([' ', ',']));
    let is_protocol = |feature: &&str| ["http1", "http2"].contains(feature);
    features.filter(is_protocol).map(str::to_owned).collect()
}

/// All features except `reqwest-013` and `tonic-014`, because those clients need their protocols.
const OURS: [(&str, &[&str]); 6] = [
    (
        "tower-attempt",
        &["http", "grpc", "hyper-util-01", "axum-08", "tower"],
    ),
    (
        "tower-jitter-retry",
        &[
            "http",
            "grpc",
            "hyper-util-01",
            "axum-08",
            "tower",
            "tracing",
            "metrics",
        ],
    ),
    (
        "tower-hedge-latency",
        &[
            "http",
            "grpc",
            "hyper-util-01",
            "axum-08",
            "drain",
            "tracing",
            "metrics",
        ],
    ),
    (
        "tower-dist-ratelimit",
        &[
            "attempt",
            "axum-08",
            "conformance",
            "toolkit",
            "tracing",
            "metrics",
        ],
    ),
    ("tower-dist-ratelimit-redis", &["tls"]),
    ("tower-dist-ratelimit-memcached", &[]),
];

#[test]
fn no_feature_enables_a_protocol_in_the_servers_of_a_consumer() {
    for (name, features) in OURS {
        let path = root().join("crates").join(name);
        for with in ["", &format!(", features = {features:?}")] {
            let dependency = format!("{name} = {{ path = {path:?}{with} }}");
            for protocol in ["http1", "http2"] {
                let only = BTreeSet::from([protocol.to_owned()]);
                let axum = format!("{protocol:?}");
                assert_eq!(protocols(&axum, &dependency), only, "{dependency}");
            }
        }
    }
}

/// Counts the layer's own crate and `tower-attempt`, and leaves the consumer out.
#[test]
fn a_layer_with_default_features_builds_at_most_24_crates() {
    for name in ["tower-jitter-retry", "tower-hedge-latency"] {
        let path = root().join("crates").join(name);
        let packages = packages(&format!("{name} = {{ path = {path:?} }}"));
        assert!(
            packages.len() <= 24,
            "{name} builds {}: {packages:#?}",
            packages.len()
        );
    }
}

#[test]
fn the_redis_crate_has_no_tls_unless_it_is_asked_for() {
    let path = root().join("crates/tower-dist-ratelimit-redis");
    let uses_rustls = |with: &str| {
        let dependency = format!("tower-dist-ratelimit-redis = {{ path = {path:?}{with} }}");
        let packages = packages(&dependency);
        assert!(packages.iter().any(|line| line.starts_with("redis v")));
        packages
            .iter()
            .any(|line| line.contains("rustls") || line.contains("native-tls"))
    };
    assert!(!uses_rustls(""));
    assert!(uses_rustls(", features = [\"tls\"]"));
}

/// The names of all packages in the build of a member's tests, with all its features.
fn names_in_tests_of(member: &str) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--all-features", "--package", member])
        .args(["--edges", "all", "--prefix", "none", "--format", "{p}"])
        .current_dir(root())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{member}: {stderr}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn the_rate_limit_crate_builds_and_tests_without_the_crates_of_its_backends() {
    let backends = ["redis", "memcached"].map(|name| format!("tower-dist-ratelimit-{name}"));
    let has = |member: &str| {
        let names = names_in_tests_of(member);
        backends.each_ref().map(|backend| names.contains(backend))
    };
    assert_eq!(has("tower-dist-ratelimit"), [false, false]);
    // These tests use both, so the names are right.
    assert_eq!(has("tests"), [true, true]);
}
