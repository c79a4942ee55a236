//! Requests that are cancelled before their decision.

use std::time::Duration;

use tests::{cancel_each, servers::Cluster};
use tokio::{task::JoinSet, time::timeout};
use tower_dist_ratelimit::{
    Decisions, Policy, Quota,
    backend::{Answer, Backend, Charge},
};
use tower_dist_ratelimit_redis::Redis;

use crate::support::{LONG, Set, answered};

const CLIENTS: usize = 30;

/// Tokens of the bucket that all clients share. It hardly refills during a test.
const EVERYONE: u64 = 1_000;

/// A limit for each client, which every client has exhausted, and a shared limit. Their keys are in different slots.
async fn exhausted(redis: &Redis, name: &str) -> Set {
    let window = Duration::from_secs(36_000_000);
    let set = Set::new(
        redis,
        &[
            Policy::new(format!("client, {name}"), Quota::new(1, window)),
            Policy::new(format!("everyone, {name}"), Quota::new(EVERYONE, window)),
        ],
    );
    for number in 0..CLIENTS {
        assert!(answered(ask(&set, number)).await.unwrap().allowed);
    }
    set
}

fn ask(set: &Set, number: usize) -> Answer {
    let client = format!("client {}", number % CLIENTS);
    set.ask(&[&client, "everyone"], 1)
}

/// The number of shared tokens that rejected requests have taken.
async fn taken(set: &Set) -> u64 {
    set.redis.finish_corrections(LONG).await.unwrap();
    let looked = set.acquire_from(&["nobody", "everyone"], 0).await.unwrap();
    let passed = u64::try_from(CLIENTS).unwrap();
    EVERYONE - passed - looked.decisions[1].remaining
}

pub(super) async fn cancelled_rejections_leave_the_shared_bucket_as_it_was(redis: &Redis) {
    let set = exhausted(redis, "cancelled").await;
    // Some requests fail immediately, because too many are in progress.
    let asked = (0..10_000).filter_map(|number| match ask(&set, number) {
        Answer::Later(later) => Some(later),
        _ => None,
    });
    for verdict in cancel_each(asked).await {
        assert!(!verdict.is_ok_and(|verdict| verdict.allowed));
    }
    assert_eq!((taken(&set).await, redis.lost_corrections()), (0, 0));
}

/// The nodes answer after the callers have gone.
pub(super) async fn rejections_that_miss_the_timeout_do_not_change_the_shared_bucket(
    cluster: &Cluster,
) {
    let redis = Redis::builder(&cluster.url()).answer_timeout(LONG);
    let redis = redis.connect().await.unwrap();
    let set = exhausted(&redis, "late").await;
    let each = |command: &[&str]| {
        for node in &cluster.nodes()[..3] {
            node.call(command);
        }
    };
    each(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let mut requests = JoinSet::new();
    for number in 0..200 {
        let answer = answered(ask(&set, number));
        requests.spawn(async move { timeout(Duration::from_millis(20), answer).await.is_err() });
    }
    assert!(requests.join_all().await.into_iter().all(|late| late));
    each(&["CLIENT", "UNPAUSE"]);
    assert_eq!((taken(&set).await, redis.lost_corrections()), (0, 0));
}

pub(super) async fn a_refund_is_in_tokens_of_the_quota_that_was_charged(redis: &Redis) {
    let set = Set::new(
        redis,
        &[
            Policy::new("tight, by hand", Quota::per_hour(1)),
            Policy::new("dynamic", Quota::per_hour(10)).dynamic_quotas(),
        ],
    );
    let quota = Quota::new(1_000, Duration::from_secs(36_000_000));
    let decide = async |cost| {
        let charges = [
            Charge::new(set.ids[0], b"alice", cost),
            Charge::new(set.ids[1], b"bob", cost).quota(quota),
        ];
        let answer = redis.acquire(&charges, &mut Decisions::rejected(2));
        answered(answer).await.unwrap()
    };
    assert!(decide(1).await.allowed);
    for _ in 0..20 {
        assert!(!decide(1).await.allowed);
    }
    assert_eq!(decide(0).await.decisions[1].remaining, 999);
}
