//! Decisions in Memcached: the number per second over one connection, and the server's processor time.

mod raw;

use std::error::Error;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tests::servers::Memcached as Server;
use tower_dist_ratelimit::{Limiter, Policy, Quota};
use tower_dist_ratelimit_memcached::Memcached;

use self::raw::Raw;
use crate::report::{Goal, OURS, Row};
use crate::throughput::{self, Shape, Subject};

const WINDOW: Shape = Shape {
    name: "memcached, different keys",
    one_key: false,
};

/// Measures a window that begins with a key's first request, which takes one `ma`, and that command alone.
///
/// # Errors
///
/// Returns an error if no server starts.
pub(crate) fn rows() -> Result<Vec<Row>, Box<dyn Error>> {
    let mut version = Command::new("memcached");
    let version = version.arg("-V").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        return Err("memcached is not installed".into());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let server = Server::start();
        let raw = Raw::connect(server.port()).await?;
        let memcached = Memcached::connect(&server.url()).await?;
        let policy =
            Policy::new("bench", Quota::per_hour(1_000_000_000)).fixed_window_from_first_request();
        let limiter = Arc::new(Limiter::new(memcached, policy)?);
        let ask_raw = move |key: Arc<str>| {
            let raw = raw.clone();
            async move { raw.decide(&key).await }
        };
        let ask_ours = move |key: Arc<str>| {
            let limiter = Arc::clone(&limiter);
            async move {
                let decision = limiter.check(&*key).await;
                decision.is_ok_and(|decision| decision.allowed)
            }
        };
        let subjects = [
            Subject::new(OURS, None, ask_ours),
            Subject::new("raw", Some(Goal::Share(1.25)), ask_raw),
        ];
        let rows = throughput::measure(&server, WINDOW, subjects).await;
        Ok(rows.into())
    })
}
