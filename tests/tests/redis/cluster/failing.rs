use tests::servers::Cluster;
use tokio::time::Instant;
use tower_dist_ratelimit::{Limiter, Policy, Quota, Source};
use tower_dist_ratelimit_redis::Redis;

use crate::{
    support::{Set, connect, until},
    under_load::{CALM, LASTS, Load, PLENTY, Report, TIMEOUT},
};

/// No decision exceeds the timeout, and the other nodes still decide on most clients.
pub(super) async fn while_a_primary_is_frozen_the_others_decide_on_what_is_theirs(
    cluster: &Cluster,
    redis: &Redis,
) {
    let policy = Policy::new("load", Quota::per_hour(PLENTY)).fixed_window_from_first_request();
    let load = Load::start(Limiter::new(redis.clone(), policy).unwrap());
    tokio::time::sleep(CALM).await;
    let began = Instant::now();
    cluster.nodes()[1].freeze();
    let begun = Instant::now();
    // Waits until all nodes decide, which is after a replica's promotion.
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
    };
    println!("{}\n{report}", Report::HEAD);
    report.is_in_time(TIMEOUT);
    let shaken = report.load.samples.iter();
    let shaken = shaken.filter(|one| one.started >= began && one.started < began + report.back());
    let (by_store, all) = (
        shaken.clone().filter(|one| one.is_by_store()).count(),
        shaken.count(),
    );
    // A stopped machine makes more decisions fail in a row, and then the circuit opens for the whole backend.
    let enough = by_store > all / 3 || (report.is_disturbed() && by_store > 0);
    assert!(all > 500 && enough, "{by_store} of {all}");
    cluster.nodes()[1].thaw();
}

pub(super) async fn a_primary_that_dies_is_replaced(cluster: &mut Cluster, redis: &Redis) {
    let set = Set::new(redis, &[Policy::new("p", Quota::per_hour(1_000))]);
    cluster.nodes_mut()[0].kill();
    a_process_that_starts_while_a_primary_is_down_uses_the_other_primaries(cluster).await;
    for number in 0..30 {
        let key = format!("key {number}");
        until("a replica to take over", || async {
            set.one(&key).await.ok()
        })
        .await;
    }
}

/// After its promotion, the replica decides on the failed primary's keys.
async fn a_process_that_starts_while_a_primary_is_down_uses_the_other_primaries(cluster: &Cluster) {
    let limiter = Limiter::new(
        connect(&cluster.url()).await,
        Policy::new("late", Quota::per_hour(1_000)),
    )
    .unwrap();
    let source = async |number: u32| {
        let decision = limiter.check(&*format!("key {number}")).await;
        decision.unwrap().source
    };
    let mut sources = Vec::new();
    for number in 0..30 {
        sources.push(source(number).await);
    }
    assert!(sources.contains(&Source::Backend), "{sources:?}");
    // Unless this process was stopped until the promotion.
    let replaced = cluster.nodes()[3].call(&["ROLE"]).texts()[0] == "master";
    let fell_back = sources.contains(&Source::Local);
    assert!(fell_back || replaced, "{sources:?}");
    for number in 0..30 {
        until("a replica to take over", || async {
            (source(number).await == Source::Backend).then_some(())
        })
        .await;
    }
}

/// The primary still runs and reaches this process, but not the other nodes. It answers that the Cluster is down.
pub(super) async fn a_primary_that_is_cut_off_from_its_cluster_is_replaced(
    cluster: &Cluster,
    redis: &Redis,
) {
    let set = Set::new(redis, &[Policy::new("cut off", Quota::per_hour(1_000))]);
    let nodes = cluster.nodes();
    let (primary, replica) = (&nodes[2], &nodes[5]);
    let id = |node: &tests::servers::Redis| node.call(&["CLUSTER", "MYID"]).text();
    primary.call(&["CONFIG", "SET", "cluster-require-full-coverage", "yes"]);
    let others = [&nodes[1], &nodes[3], &nodes[4]];
    for other in others {
        other.call(&["CLUSTER", "FORGET", &id(primary)]);
    }
    for other in others.into_iter().chain([replica]) {
        primary.call(&["CLUSTER", "FORGET", &id(other)]);
    }
    replica.call(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    until("the primary to notice", || async {
        let state = primary.call(&["CLUSTER", "INFO"]).text();
        state.contains("cluster_state:fail").then_some(())
    })
    .await;
    for number in 0..30 {
        let key = format!("key {number}");
        until("the replica to be asked", || async {
            set.one(&key).await.ok()
        })
        .await;
    }
}
