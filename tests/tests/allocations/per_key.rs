//! The memory of a key, as the table in the docs of `tower-dist-ratelimit` states it.

use std::time::Duration;

use tower_dist_ratelimit::{FailureMode, Limiter, Policy, Quota, backend::Memory};

use crate::{bytes, rate_limit::now};

const KEYS: u64 = 20_000;

/// Bytes per key in a full table, when each key has used this number of tokens.
fn per_key(of: fn(Policy) -> Policy, tokens: u64) -> u64 {
    let policy = of(Policy::new("p", Quota::per_day(1_000)));
    let memory = Memory::with_capacity(usize::try_from(KEYS).unwrap());
    let (bytes, limiter) = bytes(|| {
        let limiter = Limiter::builder(memory, policy).failure_mode(FailureMode::Closed);
        let limiter = limiter.build().unwrap();
        for key in (0..KEYS).flat_map(|key| (0..tokens).map(move |_| key)) {
            assert!(now(limiter.check(key)).unwrap().allowed);
        }
        limiter
    });
    drop(limiter);
    u64::try_from(bytes).unwrap() / KEYS
}

#[test]
fn a_key_takes_the_bytes_that_the_docs_say() {
    type Line = (fn(Policy) -> Policy, u64);
    let lines: [Line; 11] = [
        (|policy| policy, 32),
        (Policy::leaky_bucket, 32),
        (|policy| policy.leaky_queue(Duration::from_secs(80_000)), 32),
        (Policy::fixed_window, 32),
        (Policy::fixed_window_staggered, 32),
        (Policy::fixed_window_from_first_request, 50),
        (Policy::sliding_window, 85),
        (|policy| policy.sliding_window_buckets(5), 100 + 8 * 5),
        (|policy| policy.sliding_window_strict(5), 100 + 8 * 5),
        (|policy| policy.sliding_window_strict(25), 100 + 8 * 25),
        (Policy::dynamic_quotas, 100),
    ];
    for (number, (of, stated)) in lines.into_iter().enumerate() {
        let bytes = per_key(of, 1);
        // The stated number includes the allocator's overhead, which this count does not see.
        let expected = stated * 2 / 3..=stated;
        assert!(expected.contains(&bytes), "line {number}: {bytes}");
    }
}

#[test]
fn a_log_takes_16_to_32_bytes_for_each_token() {
    for tokens in [4, 5, 8, 9, 64, 65] {
        let bytes = per_key(Policy::sliding_window_log, tokens);
        let expected = 60 + 16 * tokens..=100 + 32 * tokens;
        assert!(expected.contains(&bytes), "{tokens}: {bytes}");
    }
}
