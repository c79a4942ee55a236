use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tests::servers::Cluster;
use tower_dist_ratelimit::{Policy, Quota, Source, backend::JointDecision};
use tower_dist_ratelimit_redis::Redis;

use super::keys;
use crate::support::{Set, connect};

pub(super) async fn a_slot_migrated_under_load_loses_no_decision(cluster: &Cluster, redis: &Redis) {
    const LIMIT: u64 = 1_000_000;
    let policy = |name| Policy::new(name, Quota::per_hour(LIMIT)).colocate("moving");
    let one = Arc::new(Set::new(
        redis,
        &[policy("moving").fixed_window_from_first_request()],
    ));
    let two = Arc::new(Set::new(
        redis,
        &[
            policy("moving a").fixed_window_from_first_request(),
            policy("moving b").sliding_window_buckets(4),
        ],
    ));
    one.acquire("k", 1).await.unwrap();
    two.acquire("k", 1).await.unwrap();
    let key = keys(cluster)
        .into_iter()
        .find(|key| key.contains(":moving"))
        .unwrap();
    let slot = cluster.slot(&key);
    let (from, to) = (cluster.owner(slot), (cluster.owner(slot) + 1) % 3);
    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..16)
        .map(|number| {
            let set = Arc::clone(if number % 2 == 0 { &one } else { &two });
            let stop = Arc::clone(&stop);
            tokio::spawn(async move {
                let mut made = 0;
                while !stop.load(Ordering::Relaxed) {
                    assert!(set.acquire("k", 1).await.unwrap().allowed);
                    made += 1;
                }
                made
            })
        })
        .collect();
    // New clients during the migration.
    let newcomers = tokio::spawn({
        let (set, stop) = (Arc::clone(&two), Arc::clone(&stop));
        async move {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                let verdict = set.acquire(&format!("client {number}"), 1).await.unwrap();
                assert_eq!(remaining(&verdict), [LIMIT - 1; 2]);
                number += 1;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            number
        }
    });
    for _ in 0..2 {
        for (from, to) in [(from, to), (to, from)] {
            tokio::time::sleep(Duration::from_millis(50)).await;
            tokio::task::block_in_place(|| {
                cluster.begin_migration(slot, from, to);
                cluster.migrate_keys(slot, from, to);
                cluster.end_migration(slot, to);
            });
        }
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    stop.store(true, Ordering::Relaxed);
    let mut made = [1, 1];
    for (number, task) in load.into_iter().enumerate() {
        made[number % 2] += task.await.unwrap();
    }
    assert!(newcomers.await.unwrap() > 20);
    assert!(made.iter().all(|made| *made > 50), "{made:?}");
    let left = remaining(&one.acquire("k", 0).await.unwrap());
    assert_eq!(left, [LIMIT - made[0]]);
    let left = remaining(&two.acquire("k", 0).await.unwrap());
    assert_eq!(left, [LIMIT - made[1]; 2]);
}

pub(super) async fn keys_of_which_some_have_moved_are_decided_on_one_by_one(
    cluster: &Cluster,
    redis: &Redis,
) {
    let policy = |name| {
        Policy::new(name, Quota::per_hour(10))
            .fixed_window_from_first_request()
            .colocate("moves")
    };
    let both = Arc::new(Set::new(redis, &[policy("half a"), policy("half b")]));
    let one = Set {
        redis: redis.clone(),
        ids: vec![both.ids[0]],
    };
    both.acquire("old", 1).await.unwrap();
    let moving: Vec<String> = keys(cluster)
        .into_iter()
        .filter(|key| key.contains(":half "))
        .collect();
    let slot = cluster.slot(&moving[0]);
    let (from, to) = (cluster.owner(slot), (cluster.owner(slot) + 1) % 3);
    let (asks, again) = (cluster.errors("ASK"), cluster.errors("TRYAGAIN"));
    tokio::task::block_in_place(|| {
        cluster.begin_migration(slot, from, to);
        cluster.migrate_key(&moving[0], from, to);
    });
    // A missing key is created on the target of the slot.
    assert_eq!(one.one("new").await.unwrap().remaining, 9);
    assert!(cluster.errors("ASK") > asks);
    // Two keys of which one has moved, two of which one was created on the target, and two that do not exist.
    for (key, left) in [("old", [8, 8]), ("new", [8, 9]), ("newer", [9, 9])] {
        let verdict = both.acquire(key, 1).await.unwrap();
        assert_eq!(
            (verdict.allowed, remaining(&verdict)),
            (true, left.to_vec())
        );
    }
    assert!(cluster.errors("TRYAGAIN") >= again + 3);
    // A set of policies is still all or nothing.
    one.acquire("old", 4).await.unwrap();
    for _ in 0..3 {
        let refused = both.acquire("old", 6).await.unwrap();
        assert_eq!((refused.allowed, remaining(&refused)), (false, vec![4, 8]));
        let sources = refused.decisions.iter().map(|one| one.source);
        assert!(sources.eq([Source::Parts; 2]));
    }
    both.settle("old", 6, -1).await.unwrap();
    tokio::task::block_in_place(|| {
        cluster.migrate_keys(slot, from, to);
        cluster.end_migration(slot, to);
    });
    for (key, left) in [("old", [5, 9]), ("new", [8, 9]), ("newer", [9, 9])] {
        let verdict = both.acquire(key, 0).await.unwrap();
        assert_eq!(remaining(&verdict), left, "{key}");
    }
}

pub(super) async fn a_redirect_without_a_host_means_the_host_of_the_node_that_answered(
    cluster: &Cluster,
) {
    // A client of its own. A client that was redirected before can refresh its map during the test, and then gets no redirect.
    let redis = connect(&cluster.url()).await;
    let tell = |endpoint| {
        for node in cluster.nodes() {
            node.call(&["CONFIG", "SET", "cluster-preferred-endpoint-type", endpoint]);
        }
    };
    tokio::task::block_in_place(|| tell("unknown-endpoint"));
    let policy = Policy::new("unnamed", Quota::per_hour(10)).fixed_window_from_first_request();
    let set = Set::new(&redis, &[policy.colocate("unnamed")]);
    assert_eq!(set.one("old").await.unwrap().remaining, 9);
    let mut keys = keys(cluster).into_iter();
    let key = keys.find(|key| key.contains(":unnamed")).unwrap();
    let slot = cluster.slot(&key);
    let (from, to) = (cluster.owner(slot), (cluster.owner(slot) + 1) % 3);
    let asks = cluster.errors("ASK");
    tokio::task::block_in_place(|| cluster.begin_migration(slot, from, to));
    assert_eq!(set.one("new").await.unwrap().remaining, 9);
    assert!(cluster.errors("ASK") > asks);
    tokio::task::block_in_place(|| {
        cluster.migrate_keys(slot, from, to);
        cluster.end_migration(slot, to);
    });
    let moves = cluster.errors("MOVED");
    assert_eq!(set.one("old").await.unwrap().remaining, 8);
    let moved = cluster.errors("MOVED");
    assert!(moved > moves);
    // The client knows the slot's new node by then.
    assert_eq!(set.one("old").await.unwrap().remaining, 7);
    assert_eq!(set.one("new").await.unwrap().remaining, 8);
    assert_eq!(cluster.errors("MOVED"), moved);
    tokio::task::block_in_place(|| tell("ip"));
}

/// Each of two nodes takes the other one for the owner of a slot. Then no node has the slot.
pub(super) async fn a_slot_without_an_owner_is_an_error_that_says_so(cluster: &Cluster) {
    let policy = Policy::new("lost", Quota::per_hour(10)).fixed_window_from_first_request();
    let set = |redis: &Redis| Set::new(redis, &[policy.clone().colocate("lost")]);
    let lost = set(&connect(&cluster.url()).await);
    assert_eq!(lost.one("k").await.unwrap().remaining, 9);
    let mut keys = keys(cluster).into_iter();
    let key = keys.find(|key| key.contains(":lost")).unwrap();
    let slot = cluster.slot(&key);
    let first = cluster.owner(slot);
    let (owner, other) = (&cluster.nodes()[first], &cluster.nodes()[(first + 1) % 3]);
    let slot = slot.to_string();
    let id = other.call(&["CLUSTER", "MYID"]).text();
    owner.call(&["DEL", &key]);
    owner.call(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
    let error = lost.one("k").await.unwrap_err().to_string();
    assert!(error.ends_with("the slot does not stop moving"), "{error}");

    for node in cluster.nodes() {
        node.call(&["CLUSTER", "DELSLOTS", &slot]);
    }
    let lost = set(&connect(&cluster.url()).await);
    let error = lost.one("k").await.unwrap_err().to_string();
    assert!(
        error.ends_with(&format!("no node has slot {slot}")),
        "{error}"
    );

    owner.call(&["CLUSTER", "ADDSLOTS", &slot]);
    for _ in 0..600 {
        match lost.one("k").await {
            Ok(decision) => return assert_eq!(decision.remaining, 9),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("the slot has an owner again");
}

fn remaining(verdict: &JointDecision) -> Vec<u64> {
    verdict.decisions.iter().map(|one| one.remaining).collect()
}
