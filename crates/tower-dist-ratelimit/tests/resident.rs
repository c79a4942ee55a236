//! Memory under a flood of keys, in a process of its own, so that no other test allocates.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests panic on failure")]

use std::{fs, sync::Mutex, time::Duration};

use tower_dist_ratelimit::{
    Decision, Limiter, Policy, Quota,
    backend::{Backend, Charge, Memory},
};

/// Keeps the tests from running concurrently.
static ALONE: Mutex<()> = Mutex::new(());

/// Resident memory of this process, in KiB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse().unwrap()
}

/// The remaining tokens of an exhausted key after a flood of `keys`, and the memory that the flood takes after its
/// first tenth.
fn flooded(of: fn(Policy) -> Policy, keys: u64) -> (u64, u64) {
    let quota = Quota::new(100, Duration::from_secs(10 * 365 * 86_400));
    let memory = Memory::with_capacity(5_000);
    let policy = memory.register(&[of(Policy::new("p", quota))]).unwrap()[0];
    let charge = |key: &[u8], cost| {
        let mut out = [Decision::default()];
        memory.acquire(&[Charge::new(policy, key, cost)], &mut out);
        out[0]
    };
    assert!(charge(b"hot", 100).allowed);
    let flood = |keys: std::ops::Range<u64>| {
        for key in keys {
            assert!(charge(&key.to_le_bytes(), 1).allowed);
        }
    };
    flood(0..keys / 10);
    let full = resident();
    flood(keys / 10..keys);
    (charge(b"hot", 0).remaining, resident().saturating_sub(full))
}

#[test]
fn a_million_keys_take_no_more_memory_than_the_capacity_and_reset_no_limited_key() {
    let _alone = ALONE.lock().unwrap();
    for (of, keys) in [
        (
            Policy::sliding_window_log as fn(Policy) -> Policy,
            1_000_000,
        ),
        (|policy| policy, 200_000),
        (|policy| policy.sliding_window_buckets(4), 200_000),
    ] {
        let (left, more) = flooded(of, keys);
        assert_eq!(left, 0);
        assert!(more < 512, "{more} KiB more");
    }
}

/// Neither the backend nor its local fallback allocates when it is built.
#[test]
fn memory_is_claimed_as_keys_arrive() {
    let _alone = ALONE.lock().unwrap();
    let policy = || Policy::new("p", Quota::per_second(1));
    for policy in [
        policy(),
        policy().sliding_window_log(),
        policy().dynamic_quotas(),
    ] {
        let before = resident();
        let limiter = Limiter::new(Memory::with_capacity(2_000_000), policy).unwrap();
        let more = resident().saturating_sub(before);
        assert!(more < 1_024, "{more} KiB before the first key");
        drop(limiter);
    }
}
