//! Quotas that change while keys are in use.

use std::time::Duration;

use super::*;

/// A memory with one dynamic policy, and this many keys that have used it up.
fn crowded(neighbours: u64) -> (Memory, PolicyId) {
    let memory = Memory::with_capacity(1_000);
    let policy = Policy::new("p", Quota::per_hour(10)).dynamic_quotas();
    let ids = memory.register(&[policy]).unwrap();
    for neighbour in 0..neighbours {
        let key = neighbour.to_le_bytes();
        assert!(allowed(&memory, &[Charge::new(ids[0], &key, 10)]));
    }
    (memory, ids[0])
}

#[tokio::test(start_paused = true)]
async fn idle_hours_count_by_the_quota_before_the_change_with_any_neighbours() {
    let slow = Quota::per_day(1).burst(10);
    for neighbours in [0, 500] {
        let (memory, policy) = crowded(neighbours);
        assert!(allowed(&memory, &[Charge::new(policy, b"key", 10)]));
        tokio::time::advance(Duration::from_secs(10 * 3600)).await;
        // New keys clear their neighbourhoods of unused ones.
        for neighbour in 0..neighbours {
            allowed(
                &memory,
                &[Charge::new(policy, &[0, neighbour.to_le_bytes()[0]], 1)],
            );
        }
        let mut out = [Decision::default()];
        memory.acquire(&[Charge::new(policy, b"key", 0).quota(slow)], &mut out);
        assert_eq!(out[0].remaining, 10, "{neighbours} neighbours");
    }
}

proptest::proptest! {
    /// Alone in its memory, among others, and as one policy of a set.
    #[test]
    fn a_decision_by_changing_quotas_depends_on_no_neighbour(
        steps in proptest::collection::vec((0_u64..7_200, 0_u64..4, 0_u64..30, 1_u64..100_000, 1_u64..20), 1..30),
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (lonely, in_crowd) = (crowded(0), crowded(500));
            let set = Memory::default();
            let policies = ["p", "q"].map(|name| Policy::new(name, Quota::per_hour(10)).dynamic_quotas());
            let ids = set.register(&policies).unwrap();
            for (wait, cost, limit, window, burst) in steps {
                tokio::time::advance(Duration::from_secs(wait)).await;
                let quota = Quota::new(limit, Duration::from_secs(window)).burst(burst);
                let by = |id| Charge::new(id, b"key", cost).quota(quota);
                let decided = |memory: &Memory, charges: &[Charge<'_>]| {
                    let mut out = vec![Decision::default(); charges.len()];
                    memory.acquire(charges, &mut out);
                    out[0]
                };
                let expected = decided(&lonely.0, &[by(lonely.1)]);
                assert_eq!(decided(&in_crowd.0, &[by(in_crowd.1)]), expected);
                assert_eq!(decided(&set, &[by(ids[0]), by(ids[1])]), expected);
            }
        });
    }
}
