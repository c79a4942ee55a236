//! Decisions in Redis: the number per second over one connection, and the server's processor time.

mod floor;
mod leased;
mod raw;

use std::error::Error;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tests::servers::Redis as Server;
use tower_dist_ratelimit::{Limiter, Policy, Quota};
use tower_dist_ratelimit_redis::Redis;

use self::floor::Floor;
use self::raw::Raw;
use crate::report::{Goal, OURS, Row};
use crate::throughput::{self, Shape, Subject};

const SHAPES: [Shape; 2] = [
    Shape {
        name: "redis, different keys",
        one_key: false,
    },
    Shape {
        name: "redis, one hot key",
        one_key: true,
    },
];

/// Measures all cases.
///
/// # Errors
///
/// Returns an error if no server starts.
pub(crate) fn rows() -> Result<Vec<Row>, Box<dyn Error>> {
    let mut version = Command::new("redis-server");
    let version = version.arg("--version").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        return Err("redis-server is not installed".into());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut rows = Vec::new();
        for shape in SHAPES {
            rows.extend(measure(shape).await?);
        }
        rows.extend(leased::measure().await?);
        Ok(rows)
    })
}

async fn measure(shape: Shape) -> Result<[Row; 3], Box<dyn Error>> {
    let server = Server::start();
    let raw = Raw::connect(&server.url()).await?;
    // A token takes a second, so that a key's stored value is in force when the key's next request arrives.
    let quota = Quota::per_second(1).burst(1_000_000_000);
    let redis = Redis::connect(&server.url()).await?;
    let limiter = Arc::new(Limiter::new(redis, Policy::new("bench", quota))?);
    let ask_raw = move |key: Arc<str>| {
        let mut raw = raw.clone();
        async move { raw.decide(&key).await }
    };
    let ask_ours = move |key: Arc<str>| {
        let limiter = Arc::clone(&limiter);
        async move {
            limiter
                .check(&*key)
                .await
                .is_ok_and(|decision| decision.allowed)
        }
    };
    let floor = Floor::server(&server.url(), shape.one_key).await?;
    let ask_floor = move |key: Arc<str>| floor.clone().decide(key);
    // Requests for one key share the server's work.
    let (goal, share) = match shape.one_key {
        true => (None, 0.25),
        false => (Some(Goal::ServerMicros(3.2)), 0.66),
    };
    let subjects = [
        Subject::new(OURS, goal, ask_ours),
        Subject::new("raw", Some(Goal::Share(share)), ask_raw),
        Subject::new("floor", None, ask_floor),
    ];
    Ok(throughput::measure(&server, shape, subjects).await)
}
