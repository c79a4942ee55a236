use std::{collections::HashSet, sync::Arc};

use tests::servers::Cluster;
use tower_dist_ratelimit::{Policy, Quota, Source};
use tower_dist_ratelimit_redis::Redis;

use super::{calls, keys};
use crate::support::{self, LONG, Set, connect, until};

pub(super) async fn a_cluster_that_is_taken_for_one_server_is_told_apart(cluster: &Cluster) {
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

pub(super) async fn policies_of_one_key_are_one_call(cluster: &Cluster, redis: &Redis) {
    let set = Set::new(
        redis,
        &[
            Policy::new("one", Quota::per_hour(100)),
            Policy::new("two", Quota::per_hour(50)).sliding_window_log(),
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

pub(super) async fn other_keys_are_refunded(redis: &Redis) {
    let set = Set::new(
        redis,
        &[
            Policy::new("wide", Quota::per_hour(100)),
            Policy::new("tight", Quota::per_hour(5)).fixed_window_from_first_request(),
            Policy::new("log", Quota::per_hour(100)).sliding_window_log(),
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

pub(super) async fn slots_are_asked_at_the_same_time(cluster: &Cluster) {
    let redis = Redis::builder(&cluster.url()).answer_timeout(LONG);
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

pub(super) async fn colocated_policies_are_one_call(cluster: &Cluster, redis: &Redis) {
    let set = Set::new(
        redis,
        &[
            Policy::new("user", Quota::per_hour(9)).colocate("place"),
            Policy::new("all", Quota::per_hour(2))
                .fixed_window_staggered()
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
    let slots: HashSet<u16> = keys(cluster)
        .iter()
        .filter(|key| key.contains(":user:") || key.contains(":all:"))
        .map(|key| cluster.slot(key))
        .collect();
    assert_eq!(slots.len(), 1);
}

pub(super) async fn hostile_keys_are_in_the_slots_of_their_hashes(
    cluster: &Cluster,
    redis: &Redis,
) {
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
    let slots: HashSet<u16> = keys.iter().map(|key| cluster.slot(key)).collect();
    assert_eq!(keys.len(), 40);
    assert!(slots.len() > 30, "spread over {} slots", slots.len());
}
