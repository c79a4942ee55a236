use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tests::servers::Cluster;
use tower_dist_ratelimit::{
    Policy, Quota, Source,
    backend::{Redis, Verdict},
};

use super::keys;
use crate::support::Set;

pub(super) async fn a_slot_migrated_under_load_loses_no_decision(cluster: &Cluster, redis: &Redis) {
    const LIMIT: u64 = 1_000_000;
    let single = Arc::new(Set::new(
        redis,
        &[Policy::new("moving", Quota::per_hour(LIMIT))],
    ));
    let set = Arc::new(Set::new(
        redis,
        &[
            Policy::new("moving a", Quota::per_hour(LIMIT)),
            Policy::new("moving b", Quota::per_hour(LIMIT)).sub_windows(4),
        ],
    ));
    single.acquire("k", 1).await.unwrap();
    set.acquire("k", 1).await.unwrap();
    let key = keys(cluster)
        .into_iter()
        .find(|key| key.contains(":moving"))
        .unwrap();
    let slot = cluster.slot(&key);
    let (from, to) = (cluster.owner(slot), (cluster.owner(slot) + 1) % 3);
    let stop = Arc::new(AtomicBool::new(false));
    let made = Arc::new(AtomicU64::new(1));
    let load: Vec<_> = (0..16)
        .map(|number| {
            let (single, set) = (Arc::clone(&single), Arc::clone(&set));
            let (stop, made) = (Arc::clone(&stop), Arc::clone(&made));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let verdict = if number % 2 == 0 {
                        made.fetch_add(1, Ordering::Relaxed);
                        single.acquire("k", 1).await
                    } else {
                        set.acquire("k", 1).await
                    };
                    assert!(verdict.unwrap().allowed);
                }
            })
        })
        .collect();
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
    for task in load {
        task.await.unwrap();
    }
    let made = made.load(Ordering::Relaxed);
    let looked = single.acquire("k", 0).await.unwrap().decisions[0];
    let came_back = LIMIT / 3600 * 60;
    assert!(made > 50);
    assert!(
        LIMIT - looked.remaining <= made && looked.remaining <= LIMIT - made + came_back,
        "{made}: {looked:?}"
    );
}

pub(super) async fn keys_of_which_some_have_moved_are_decided_on_one_by_one(
    cluster: &Cluster,
    redis: &Redis,
) {
    let policy = |name| {
        Policy::new(name, Quota::per_hour(10))
            .first_hit()
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
    // One key that nobody has: it is made where the slot goes.
    assert_eq!(one.one("new").await.unwrap().remaining, 9);
    assert!(cluster.errors("ASK") > asks);
    // Two keys, of which one has moved; two of which one was made there; and two that nobody has.
    for (key, left) in [("old", [8, 8]), ("new", [8, 9]), ("newer", [9, 9])] {
        let verdict = both.acquire(key, 1).await.unwrap();
        assert_eq!(
            (verdict.allowed, remaining(&verdict)),
            (true, left.to_vec())
        );
    }
    assert!(cluster.errors("TRYAGAIN") >= again + 3);
    // All or nothing, still.
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

fn remaining(verdict: &Verdict) -> Vec<u64> {
    verdict.decisions.iter().map(|one| one.remaining).collect()
}
