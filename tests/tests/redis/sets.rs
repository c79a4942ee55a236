//! Decisions on several policies in one call.

use tests::servers::Redis as Server;
use tower_dist_ratelimit::{
    Policy, Quota,
    backend::{Backend, Charge},
};

use crate::support::{Set, answered, calls, connect};

#[tokio::test]
async fn a_rejection_by_the_third_policy_does_not_charge_the_others_and_reports_their_remaining_tokens()
 {
    let server = Server::start();
    let set = Set::new(
        &connect(&server.url()).await,
        &[
            Policy::new("hour", Quota::per_hour(100)),
            Policy::new("day", Quota::per_day(50)).sliding_window_log(),
            Policy::new("five", Quota::per_hour(5)).fixed_window(),
        ],
    );
    for _ in 0..5 {
        assert!(set.acquire("k", 1).await.unwrap().allowed);
    }
    for _ in 0..3 {
        let before = calls(&server);
        let refused = set.acquire("k", 1).await.unwrap();
        assert_eq!(calls(&server) - before, 1, "one call for all three");
        assert!(!refused.allowed);
        let [hour, day, five] = &refused.decisions[..] else {
            panic!()
        };
        assert_eq!((hour.allowed, hour.remaining, hour.granted), (true, 95, 0));
        assert_eq!((day.allowed, day.remaining, day.granted), (true, 45, 0));
        assert_eq!((five.allowed, five.remaining), (false, 0));
    }
}

#[tokio::test]
async fn some_of_a_set_are_decided_together_too() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    let quota = Quota::per_hour(3);
    let all = Set::new(
        &redis,
        &[
            Policy::new("a", quota),
            Policy::new("b", quota),
            Policy::new("c", quota),
        ],
    );
    let some = Set {
        redis,
        ids: vec![all.ids[2], all.ids[0]],
    };
    assert_eq!(some.acquire("k", 2).await.unwrap().decisions.len(), 2);
    let left: Vec<u64> = all
        .acquire("k", 1)
        .await
        .unwrap()
        .decisions
        .iter()
        .map(|d| d.remaining)
        .collect();
    assert_eq!(left, [0, 2, 0]);
}

/// The number of scripts in the server's cache.
fn scripts(server: &Server) -> u64 {
    let info = server.call(&["INFO", "memory"]).text();
    let mut lines = info.lines();
    let count = lines.find_map(|line| line.strip_prefix("number_of_cached_scripts:"));
    count.unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn all_subsets_of_a_set_share_a_script_and_decide_as_they_would_alone() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    let before = scripts(&server);
    let quota = Quota::per_hour(1_000);
    let policies = [
        Policy::new("bucket", quota),
        Policy::new("fixed", quota).fixed_window(),
        Policy::new("log", quota).sliding_window_log(),
        Policy::new("own", quota).dynamic_quotas().colocate("here"),
        Policy::new("two", quota).sliding_window(),
    ];
    let all = Set::new(&redis, &policies);
    let mut used = [0; 5];
    for mask in 1_usize..32 {
        let applies: Vec<usize> = (0..5).filter(|place| mask >> place & 1 == 1).collect();
        let some = Set {
            redis: redis.clone(),
            ids: applies.iter().map(|&place| all.ids[place]).collect(),
        };
        for cost in [1, 2] {
            let verdict = some.acquire("k", cost).await.unwrap();
            let left = verdict.decisions.iter().map(|one| one.remaining);
            for (&place, left) in applies.iter().zip(left) {
                used[place] += cost;
                assert_eq!(left, 1_000 - used[place], "{mask:b}");
            }
        }
        some.settle("k", 2, -2).await.unwrap();
        applies.iter().for_each(|&place| used[place] -= 2);
        assert!(!some.acquire("k", 1_001).await.unwrap().allowed);
    }
    // One script for each policy, and one for the set.
    assert!(scripts(&server) - before <= 6, "{}", scripts(&server));
}

#[tokio::test]
async fn concurrent_calls_for_different_subsets_are_kept_apart() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    let names = ["a", "b", "c"];
    let all = Set::new(
        &redis,
        &names.map(|name| Policy::new(name, Quota::per_hour(9))),
    );
    let charges = |places: &[usize], key: &'static str, cost| -> Vec<Charge<'static>> {
        let charge = |&place: &usize| Charge::new(all.ids[place], key.as_bytes(), cost);
        places.iter().map(charge).collect()
    };
    let asked = [
        (charges(&[0, 1, 2], "k", 1), vec![8, 8, 8]),
        (charges(&[0, 1], "k", 2), vec![6, 6]),
        (charges(&[2, 1], "k", 3), vec![5, 3]),
        (charges(&[0, 2], "k", 1), vec![5, 4]),
        (charges(&[0, 2], "other", 4), vec![5, 5]),
        (charges(&[1, 2], "k", 4), vec![3, 4]),
        (charges(&[1, 2], "k", 0), vec![3, 4]),
    ];
    let sent: Vec<_> = asked
        .iter()
        .map(|(charges, _)| answered(redis.acquire(charges, &mut [])))
        .collect();
    for (sent, (_, left)) in sent.into_iter().zip(&asked) {
        let decisions = sent.await.unwrap().decisions;
        let said: Vec<u64> = decisions.iter().map(|one| one.remaining).collect();
        assert_eq!(said, *left);
    }
    let twice = charges(&[1, 1], "k", 1);
    let error = answered(redis.acquire(&twice, &mut [])).await.unwrap_err();
    let says = "the rate limit's backend did not decide: \
                charges to policies of several sets, or several charges to one policy";
    assert_eq!(error.to_string(), says);
}
