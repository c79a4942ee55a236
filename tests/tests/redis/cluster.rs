//! All of these tests share one Cluster, one after another, because it takes seven processes.

mod cancelling;
mod deciding;
mod failing;
mod moving;
mod topology;

use std::time::Duration;

use tests::servers::{Cluster, free_port};
use tower_dist_ratelimit::{
    Policy, Quota,
    conformance::{Conformance, Sleeping},
};
use tower_dist_ratelimit_redis::Redis;

pub(crate) use self::topology::Nodes;
use crate::support::{self, Set, connect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_three_primaries_keeps_every_promise() {
    let mut cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
    let redis = connect(&cluster.url()).await;
    one_node_that_is_there_is_enough(&cluster).await;
    deciding::a_cluster_that_is_taken_for_one_server_is_told_apart(&cluster).await;
    deciding::policies_of_one_key_are_one_call(&cluster, &redis).await;
    deciding::other_keys_are_refunded(&redis).await;
    cancelling::a_refund_is_in_tokens_of_the_quota_that_was_charged(&redis).await;
    cancelling::cancelled_rejections_leave_the_shared_bucket_as_it_was(&redis).await;
    cancelling::rejections_that_miss_the_timeout_do_not_change_the_shared_bucket(&cluster).await;
    deciding::slots_are_asked_at_the_same_time(&cluster).await;
    deciding::colocated_policies_are_one_call(&cluster, &redis).await;
    deciding::hostile_keys_are_in_the_slots_of_their_hashes(&cluster, &redis).await;
    moving::a_slot_migrated_under_load_loses_no_decision(&cluster, &redis).await;
    moving::keys_of_which_some_have_moved_are_decided_on_one_by_one(&cluster, &redis).await;
    moving::a_redirect_without_a_host_means_the_host_of_the_node_that_answered(&cluster).await;
    moving::a_slot_without_an_owner_is_an_error_that_says_so(&cluster).await;
    it_conforms(&redis).await;
    failing::while_a_primary_is_frozen_the_others_decide_on_what_is_theirs(&cluster, &redis).await;
    failing::a_primary_that_dies_is_replaced(&mut cluster, &redis).await;
    failing::a_primary_that_is_cut_off_from_its_cluster_is_replaced(&cluster, &redis).await;
}

async fn one_node_that_is_there_is_enough(cluster: &Cluster) {
    let there = cluster.nodes()[2].port();
    let url = format!(
        "redis-cluster://127.0.0.1:{},127.0.0.1:{there}",
        free_port()
    );
    let set = Set::new(
        &connect(&url).await,
        &[Policy::new("p", Quota::per_hour(1))],
    );
    for key in 0..20 {
        assert!(set.one(&key.to_string()).await.unwrap().allowed);
    }
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
