//! One hot key: leases against a round trip per decision.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tests::servers::Redis as Server;
use tower_dist_ratelimit::{Consistency, Limiter, Policy, Quota};
use tower_dist_ratelimit_redis::Redis;

use super::raw::Raw;
use crate::report::{Goal, OURS, Row};
use crate::throughput::{self, Shape, Subject};

const SHAPE: Shape = Shape {
    name: "redis, one hot key, with leases",
    one_key: true,
};

/// The number of requests, and the number of requests admitted immediately.
#[derive(Default)]
struct Asked {
    all: AtomicU64,
    admitted: AtomicU64,
}

impl Asked {
    fn share(&self) -> f64 {
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed) as f64;
        count(&self.admitted) / count(&self.all)
    }
}

pub(super) async fn measure() -> Result<[Row; 2], Box<dyn Error>> {
    let server = Server::start();
    let raw = Raw::connect(&server.url()).await?;
    let redis = Redis::connect(&server.url()).await?;
    let policy = Policy::new("bench", Quota::per_second(1_000_000_000));
    let limiter = Limiter::builder(redis, policy).consistency(Consistency::leased());
    let (limiter, asked) = (Arc::new(limiter.build()?), Arc::new(Asked::default()));
    let ask_raw = move |key: Arc<str>| {
        let mut raw = raw.clone();
        async move { raw.decide(&key).await }
    };
    let counted = Arc::clone(&asked);
    let ask_ours = move |key: Arc<str>| {
        let (limiter, asked) = (Arc::clone(&limiter), Arc::clone(&counted));
        async move {
            let decision = limiter.check(&*key).await;
            let admitted = decision.is_ok_and(|decision| decision.allowed);
            asked.all.fetch_add(1, Ordering::Relaxed);
            asked.admitted.fetch_add(admitted.into(), Ordering::Relaxed);
            admitted
        }
    };
    let subjects = [
        Subject::new(OURS, None, ask_ours),
        Subject::new("raw", Some(Goal::Share(0.05)), ask_raw),
    ];
    let rows = throughput::measure(&server, SHAPE, subjects).await;
    let share = asked.share();
    if share < 0.99 {
        return Err(format!("only {share:.3} of the requests were admitted").into());
    }
    Ok(rows)
}
