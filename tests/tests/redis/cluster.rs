//! One Cluster for all of this, one after the other: seven processes are enough for a test program.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tests::servers::Cluster;
use tokio::time::Instant;
use tower_dist_ratelimit::{
    Limiter, Policy, Quota, Source,
    backend::{Redis, Verdict},
    conformance::{Conformance, Sleeping},
};

use crate::{
    ladder::{CALM, DEADLINE, LASTS, Load, PLENTY, Report},
    support::{self, LONG, Set, connect, until},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster() {
    let mut cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
    let redis = connect(&cluster.url()).await;
    a_cluster_that_is_taken_for_one_server_is_told_apart(&cluster).await;
    policies_of_one_key_are_one_call(&cluster, &redis).await;
    other_keys_are_refunded(&redis).await;
    slots_are_asked_at_the_same_time(&cluster).await;
    colocated_policies_are_one_call(&cluster, &redis).await;
    hostile_keys_are_in_the_slots_of_their_hashes(&cluster, &redis).await;
    a_slot_migrated_under_load_loses_no_decision(&cluster, &redis).await;
    keys_of_which_some_have_moved_are_decided_on_once_all_have(&cluster, &redis).await;
    it_conforms(&redis).await;
    while_a_primary_is_frozen_the_others_decide_on_what_is_theirs(&cluster, &redis).await;
    a_primary_that_dies_is_replaced(&mut cluster, &redis).await;
}

async fn it_conforms(redis: &Redis) {
    let redis = redis.clone();
    let clock = Sleeping::new(Duration::from_millis(2));
    let kit = Conformance::new(move || redis.clone(), clock).sequences(4);
    kit.run().await.unwrap();
}

fn keys(cluster: &Cluster) -> Vec<String> {
    cluster.nodes()[..3]
        .iter()
        .flat_map(|node| node.keys())
        .collect()
}

fn calls(cluster: &Cluster) -> u64 {
    cluster.nodes()[..3].iter().map(support::calls).sum()
}

async fn a_cluster_that_is_taken_for_one_server_is_told_apart(cluster: &Cluster) {
    let one = connect(&cluster.nodes()[0].url()).await;
    let set = Set::new(&one, &[Policy::new("p", Quota::per_hour(1))]);
    let mut told = false;
    for key in 0..20 {
        if let Err(error) = set.one(&key.to_string()).await {
            told = error.to_string().contains("redis-cluster://");
            assert!(told, "{error}");
        }
    }
    assert!(told, "all keys are on one node");
}

async fn policies_of_one_key_are_one_call(cluster: &Cluster, redis: &Redis) {
    let set = Set::new(
        redis,
        &[
            Policy::new("one", Quota::per_hour(100)),
            Policy::new("two", Quota::per_hour(50)).sliding_log(),
            Policy::new("three", Quota::per_hour(3)).fixed_window(),
        ],
    );
    for key in 0..20 {
        let key = format!("same {key}");
        set.acquire(&key, 3).await.unwrap();
        let before = calls(cluster);
        let refused = set.acquire(&key, 1).await.unwrap();
        assert_eq!(calls(cluster) - before, 1);
        let left: Vec<u64> = refused.decisions.iter().map(|one| one.remaining).collect();
        assert_eq!((refused.allowed, left), (false, vec![97, 47, 0]));
        assert!(
            refused
                .decisions
                .iter()
                .all(|one| one.source == Source::Backend)
        );
    }
}

async fn other_keys_are_refunded(redis: &Redis) {
    let set = Set::new(
        redis,
        &[
            Policy::new("wide", Quota::per_hour(100)),
            Policy::new("tight", Quota::per_hour(5)).first_hit(),
            Policy::new("log", Quota::per_hour(100)).sliding_log(),
        ],
    );
    let keys = ["alice", "bob", "carol"];
    for left in (0..5).rev() {
        let allowed = set.acquire_from(&keys, 1).await.unwrap();
        assert!(allowed.allowed && allowed.decisions[1].remaining == left);
        assert!(
            allowed
                .decisions
                .iter()
                .all(|one| one.source == Source::Backend)
        );
    }
    for _ in 0..3 {
        let refused = set.acquire_from(&keys, 1).await.unwrap();
        let [wide, tight, log] = &refused.decisions[..] else {
            panic!()
        };
        assert!(!refused.allowed && !tight.allowed && wide.allowed && log.allowed);
        assert_eq!((wide.remaining, wide.granted, log.remaining), (95, 0, 95));
        assert!(
            refused
                .decisions
                .iter()
                .all(|one| one.source == Source::Parts)
        );
    }
    let looked = set.acquire_from(&keys, 0).await.unwrap();
    let left: Vec<u64> = looked.decisions.iter().map(|one| one.remaining).collect();
    assert_eq!(left, [95, 0, 95], "what was taken is back");
}

async fn slots_are_asked_at_the_same_time(cluster: &Cluster) {
    let redis = Redis::builder(&cluster.url()).answer_deadline(LONG);
    let redis = redis.connect().await.unwrap();
    let policies = [0, 1, 2].map(|node| Policy::new(format!("at {node}"), Quota::per_hour(100)));
    let set = Arc::new(Set::new(&redis, &policies));
    let mut keys = Vec::new();
    for (node, &id) in set.ids.iter().enumerate() {
        let one = Set {
            redis: redis.clone(),
            ids: vec![id],
        };
        let is_there = || {
            let keys = cluster.nodes()[node].keys();
            keys.iter().any(|key| key.ends_with(&format!("at {node}")))
        };
        let mut number = 0;
        while !is_there() {
            number += 1;
            one.one(&number.to_string()).await.unwrap();
        }
        keys.push(number.to_string());
    }
    for (number, held) in cluster.nodes()[..3].iter().enumerate() {
        let calls = || cluster.nodes()[..3].iter().map(support::calls);
        let before: Vec<u64> = calls().collect();
        held.call(&["CLIENT", "PAUSE", "60000", "WRITE"]);
        let asked = tokio::spawn({
            let (set, keys) = (Arc::clone(&set), keys.clone());
            async move {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                set.acquire_from(&keys, 1).await
            }
        });
        until("the other two to be asked", || async {
            let all = calls().zip(&before).enumerate();
            let mut others = all.filter(|(node, _)| *node != number);
            others.all(|(_, (now, before))| now > *before).then_some(())
        })
        .await;
        assert!(!asked.is_finished(), "one of them does not answer");
        held.call(&["CLIENT", "UNPAUSE"]);
        assert!(asked.await.unwrap().unwrap().allowed);
    }
}

async fn colocated_policies_are_one_call(cluster: &Cluster, redis: &Redis) {
    let set = Set::new(
        redis,
        &[
            Policy::new("user", Quota::per_hour(9)).colocate("place"),
            Policy::new("all", Quota::per_hour(2))
                .phase_per_key()
                .colocate("place"),
        ],
    );
    for key in ["a", "b", "c"] {
        set.acquire_from(&[key, "everyone"], 1).await.unwrap();
    }
    let before = calls(cluster);
    let refused = set.acquire_from(&["d", "everyone"], 1).await.unwrap();
    assert_eq!(calls(cluster) - before, 1);
    assert_eq!(
        (refused.allowed, refused.decisions[0].remaining),
        (false, 9)
    );
    assert_eq!(refused.decisions[0].source, Source::Backend);
    let slots: std::collections::HashSet<u16> = keys(cluster)
        .iter()
        .filter(|key| key.contains(":user:") || key.contains(":all:"))
        .map(|key| cluster.slot(key))
        .collect();
    assert_eq!(slots.len(), 1);
}

async fn hostile_keys_are_in_the_slots_of_their_hashes(cluster: &Cluster, redis: &Redis) {
    let set = Set::new(redis, &[Policy::new("}{hostile", Quota::per_hour(1))]);
    let slots = (0..40).map(|number| format!("{{same}}{number}}}{{"));
    for key in slots {
        assert!(set.one(&key).await.unwrap().allowed);
        assert!(!set.one(&key).await.unwrap().allowed);
    }
    let keys: Vec<String> = keys(cluster)
        .into_iter()
        .filter(|key| key.contains("hostile"))
        .collect();
    let slots: std::collections::HashSet<u16> = keys.iter().map(|key| cluster.slot(key)).collect();
    assert_eq!(keys.len(), 40);
    assert!(slots.len() > 30, "spread over {} slots", slots.len());
}

async fn a_slot_migrated_under_load_loses_no_decision(cluster: &Cluster, redis: &Redis) {
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

async fn keys_of_which_some_have_moved_are_decided_on_once_all_have(
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
    // Two keys, of which one has moved; and two of which one was made there.
    let waiting = ["old", "new"].map(|key| {
        let both = Arc::clone(&both);
        tokio::spawn(async move { both.acquire(key, 1).await })
    });
    until("keys to be waited for", || async {
        (cluster.errors("TRYAGAIN") > again + 4).then_some(())
    })
    .await;
    assert!(waiting.iter().all(|task| !task.is_finished()));
    tokio::task::block_in_place(|| {
        cluster.migrate_keys(slot, from, to);
        cluster.end_migration(slot, to);
    });
    let [old, new] = waiting;
    let left = |verdict: Verdict| -> Vec<u64> {
        assert!(verdict.allowed);
        verdict.decisions.iter().map(|one| one.remaining).collect()
    };
    assert_eq!(left(old.await.unwrap().unwrap()), [8, 8]);
    assert_eq!(left(new.await.unwrap().unwrap()), [8, 9]);
}

/// Nobody waits longer than the deadline, and the limits of most clients are still the store's.
async fn while_a_primary_is_frozen_the_others_decide_on_what_is_theirs(
    cluster: &Cluster,
    redis: &Redis,
) {
    let policy = Policy::new("load", Quota::per_hour(PLENTY)).first_hit();
    let load = Load::start(Limiter::new(redis.clone(), policy).unwrap());
    tokio::time::sleep(CALM).await;
    let began = Instant::now();
    cluster.nodes()[1].freeze();
    let begun = Instant::now();
    // Until all of them are again, which is when a replica has taken over.
    until("a replica to take over", || async {
        (begun.elapsed() > 2 * LASTS && load.is_calm(begun)).then_some(())
    })
    .await;
    let report = Report {
        name: "one of three primaries frozen, until its replica has taken over",
        began,
        begun,
        ending: began,
        ended: began,
        load: load.stop().await,
        forgot: false,
        lines: Vec::new(),
    };
    println!("{}\n{report}", Report::HEAD);
    report.is_in_time(DEADLINE);
    let shaken = report.load.samples.iter();
    let shaken = shaken.filter(|one| one.started >= began && one.started < began + report.back());
    let (by_store, all) = (
        shaken.clone().filter(|one| one.is_by_store()).count(),
        shaken.count(),
    );
    assert!(all > 500 && by_store > all / 3, "{by_store} of {all}");
    cluster.nodes()[1].thaw();
}

async fn a_primary_that_dies_is_replaced(cluster: &mut Cluster, redis: &Redis) {
    let set = Set::new(redis, &[Policy::new("p", Quota::per_hour(1_000))]);
    cluster.nodes_mut()[0].kill();
    for number in 0..30 {
        let key = format!("key {number}");
        until("a replica to take over", || async {
            set.one(&key).await.ok()
        })
        .await;
    }
}
