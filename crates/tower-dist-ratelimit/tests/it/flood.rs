//! Endless new keys.

use std::time::Duration;

use tower_dist_ratelimit::{
    Decision, Policy, Quota,
    backend::{Answer, Backend, Charge, Memory, PolicyId},
};

fn charge(memory: &Memory, policy: PolicyId, key: &[u8], cost: u64) -> Decision {
    let mut out = [Decision::default()];
    let answer = memory.acquire(&[Charge::new(policy, key, cost)], &mut out);
    assert!(matches!(answer, Answer::Done(_)));
    out[0]
}

/// So slow that no token comes back during a test, even without a paused clock.
fn frozen(limit: u64) -> Policy {
    Policy::new(
        "p",
        Quota::new(limit, Duration::from_secs(10 * 365 * 86_400)),
    )
}

const KEPT: [fn(Policy) -> Policy; 7] = [
    |policy| policy.leaky_queue(Duration::from_secs(10 * 365 * 86_400)),
    Policy::fixed_window,
    Policy::fixed_window_from_first_request,
    Policy::sliding_window,
    |policy| policy.sliding_window_strict(4),
    Policy::sliding_window_log,
    Policy::dynamic_quotas,
];

/// Other threads create new keys in the same neighbourhoods.
#[test]
fn threads_on_one_key_admit_exactly_the_limit() {
    for of in KEPT {
        let memory = Memory::with_capacity(200);
        let policy = memory.register(&[of(frozen(100))]).unwrap()[0];
        let full = charge(&memory, policy, b"key", 0).remaining;
        let granted = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4_u64)
                .map(|thread| {
                    let memory = &memory;
                    scope.spawn(move || {
                        let mut granted = 0;
                        for turn in 0..500 {
                            granted += charge(memory, policy, b"key", 1).granted;
                            let new = (thread << 32 | turn).to_le_bytes();
                            assert!(charge(memory, policy, &new, 1).allowed);
                        }
                        granted
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|one| one.join().unwrap())
                .sum::<u64>()
        });
        assert_eq!(granted, full);
    }
}

#[test]
fn floods_of_new_keys_do_not_free_limited_ones() {
    for of in KEPT {
        let memory = Memory::with_capacity(200);
        let policy = memory.register(&[of(frozen(100))]).unwrap()[0];
        let hot: Vec<String> = (0..20).map(|number| format!("hot {number}")).collect();
        for key in &hot {
            while charge(&memory, policy, key.as_bytes(), 1).allowed {}
        }
        for key in 0..20_000_u64 {
            assert!(charge(&memory, policy, &key.to_le_bytes(), 1).allowed);
        }
        for key in &hot {
            let hot = charge(&memory, policy, key.as_bytes(), 1);
            assert!(!hot.allowed, "{hot:?}");
        }
    }
}

/// The places of keys are random: in one of some five hundred runs one key is missing.
#[test]
fn as_many_keys_as_the_capacity_are_remembered() {
    for of in KEPT {
        let memory = Memory::with_capacity(10_000);
        let policy = memory.register(&[of(frozen(2))]).unwrap()[0];
        for key in 0..10_000_u64 {
            charge(&memory, policy, &key.to_le_bytes(), 1);
        }
        let forgotten = (0..10_000_u64)
            .filter(|key| {
                charge(&memory, policy, &key.to_le_bytes(), 0)
                    .reset_after
                    .is_zero()
            })
            .count();
        assert!(forgotten <= 1, "{forgotten}");
    }
}

/// The newest keys remain, which are as limited as the older ones.
#[test]
fn a_flood_leaves_at_most_as_many_keys_as_places() {
    const CAPACITY: usize = 1_000;
    for (of, number) in KEPT.into_iter().zip(0..) {
        let memory = Memory::with_capacity(CAPACITY);
        let policy = memory.register(&[of(frozen(2))]).unwrap()[0];
        for key in 0..30 * CAPACITY {
            charge(&memory, policy, &key.to_le_bytes(), 1);
        }
        let kept = (0..30 * CAPACITY)
            .filter(|key| {
                let seen = charge(&memory, policy, &key.to_le_bytes(), 0);
                !seen.reset_after.is_zero()
            })
            .count();
        // Two places per key if a state is a number, otherwise one and a half, in whole buckets.
        let places = if number < 2 {
            2 * CAPACITY
        } else {
            3 * CAPACITY / 2 + 8
        };
        assert!((CAPACITY..=places).contains(&kept), "{kept} of {CAPACITY}");
    }
}

#[tokio::test(start_paused = true)]
async fn expired_keys_make_room_without_a_task() {
    for of in [
        Policy::fixed_window_from_first_request,
        Policy::sliding_window,
        Policy::sliding_window_log,
    ] {
        let memory = Memory::with_capacity(1_000);
        let policy = of(Policy::new("p", Quota::per_second(100)));
        let policy = memory.register(&[policy]).unwrap()[0];
        // Three times the capacity in all, but few enough at a time that every key finds a place.
        for generation in 0..10_u64 {
            // Older keys are more limited than newer ones, so only time can make room.
            for key in 0..500_u64 {
                let key = (generation << 32 | key).to_le_bytes();
                assert!(charge(&memory, policy, &key, 100 - generation).allowed);
            }
            for key in 0..500_u64 {
                let key = (generation << 32 | key).to_le_bytes();
                assert_eq!(charge(&memory, policy, &key, 0).remaining, generation);
            }
            tokio::time::advance(Duration::from_secs(2)).await;
        }
    }
}

/// The policy's own quota is faster and would treat the key as unused.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_limited_by_a_quota_of_its_own_keeps_its_place_when_others_come() {
    const HOUR: Duration = Duration::from_secs(3_600);
    for of in [(|policy| policy) as fn(Policy) -> Policy, |policy| {
        policy.leaky_queue(HOUR)
    }] {
        let memory = Memory::with_capacity(1_000);
        let policy = of(Policy::new("p", Quota::per_second(100))).dynamic_quotas();
        let policy = memory.register(&[policy]).unwrap()[0];
        let slow = || {
            let mut out = [Decision::default()];
            let charge = Charge::new(policy, b"slow", 1).quota(Quota::per_hour(10));
            memory.acquire(&[charge], &mut out);
            out[0]
        };
        while slow().allowed {}
        for minute in 1..=5_u64 {
            tokio::time::advance(Duration::from_secs(60)).await;
            for key in 0..100_u64 {
                let key = (minute << 32 | key).to_le_bytes();
                assert!(charge(&memory, policy, &key, 1).allowed);
            }
            assert!(!slow().allowed, "after {minute} of 6 minutes");
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(slow().allowed);
    }
}
