//! The compiler's messages that the recipe `compiler_errors` quotes, from the real compiler.

use std::fs;
use std::path::Path;
use std::process::Command;

/// For each mistake: a stack, and what the compiler says about it.
const MISTAKES: [(&str, &str, &[&str]); 5] = [
    (
        "body",
        "let client = service_fn(async |_: Request<hyper::body::Incoming>| Ok::<_, tower::BoxError>(Response::new(Body::default())));
         is_service::<Request<hyper::body::Incoming>, _>(&HedgeLayer::http().layer(client));",
        &[
            "the body `hyper::body::Incoming` can't be resent",
            "wrap any other body, such as a server's `Incoming`, in a `ReplayBody`: put `map_request(|request| request.map(ReplayBody::new))` above the layer",
        ],
    ),
    (
        "timeout",
        "let client = service_fn(async |_: Request<Body>| Ok::<_, std::fmt::Error>(Response::new(Body::default())));
         let retry = RetryLayer::builder().http().deadline(std::time::Duration::from_secs(1)).build().unwrap();
         is_service::<Request<Body>, _>(&retry.layer(client));",
        &["the error type `std::fmt::Error` has no outcome for a timeout"],
    ),
    (
        "rejection",
        "let client = service_fn(async |_: Request<Body>| Ok::<_, tower::BoxError>(Response::new(7_u8)));
         let policy = Policy::new(\"all\", Quota::per_second(1));
         let limit = RateLimitLayer::builder(Memory::default()).limit(policy).build().unwrap();
         is_service::<Request<Body>, _>(&limit.layer(client));",
        &["`u8: From<bytes::Bytes>` is not satisfied",
        ],
    ),
    (
        "protocol",
        "type Boxed = http_body_util::combinators::BoxBody<bytes::Bytes, std::io::Error>;
         let client = service_fn(async |_: Request<Boxed>| Ok::<_, tower::BoxError>(Response::new(Body::default())));
         is_service::<Request<Boxed>, _>(&RetryLayer::builder().build().unwrap().layer(client));",
        &["`Generic: Outcomes<Request<", "is not satisfied"],
    ),
    (
        "clone",
        "let client = service_fn(async |_: Request<Body>| Ok::<_, tower::BoxError>(Response::new(Body::default())));
         is_service::<Request<Body>, _>(&RetryLayer::http().layer(tower::util::BoxService::new(client)));",
        &["Clone` is not satisfied"],
    ),
];

const HEAD: &str = "#![allow(unused_imports)]
use example_cookbook::compiler_errors::is_service;
use http::{Request, Response};
use tower::{Layer, service_fn};
use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory};
use tower_hedge_latency::HedgeLayer;
use tower_jitter_retry::RetryLayer;
type Body = http_body_util::Full<bytes::Bytes>;
";

/// Compiles the dependencies once more, so only `scripts/full` runs it.
#[test]
#[ignore = "takes a minute; scripts/full runs it"]
fn the_compiler_reports_each_mistake_in_the_words_of_the_recipe() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiler_errors");
    let _ = fs::remove_dir_all(&project);
    fs::create_dir_all(project.join("src/bin")).unwrap();
    fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let root = root.canonicalize().unwrap();
    let root = root.display();
    let manifest = format!(
        "[package]\nname = \"mistakes\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         bytes = \"1\"\nhttp = \"1\"\nhttp-body-util = \"0.1\"\nhyper = \"1\"\ntower = {{ version = \"0.5\", features = [\"util\"] }}\n\
         example-cookbook = {{ path = \"{root}/examples/cookbook\" }}\n\
         tower-dist-ratelimit = {{ path = \"{root}/crates/tower-dist-ratelimit\" }}\n\
         tower-hedge-latency = {{ path = \"{root}/crates/tower-hedge-latency\" }}\n\
         tower-jitter-retry = {{ path = \"{root}/crates/tower-jitter-retry\" }}\n"
    );
    fs::write(project.join("Cargo.toml"), manifest).unwrap();
    for (name, code, _) in MISTAKES {
        let file = project.join(format!("src/bin/{name}.rs"));
        fs::write(file, format!("{HEAD}fn main() {{\n{code}\n}}\n")).unwrap();
    }
    for (name, code, messages) in MISTAKES {
        let check = Command::new(env!("CARGO"))
            .args(["check", "--quiet", "--offline", "--bin", name])
            .current_dir(&project)
            .env("CARGO_TARGET_DIR", project.join("target"))
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&check.stderr);
        assert!(!check.status.success(), "this compiles: {code}");
        for message in messages {
            assert!(errors.contains(message), "{message:?} is not in:\n{errors}");
        }
    }
}
