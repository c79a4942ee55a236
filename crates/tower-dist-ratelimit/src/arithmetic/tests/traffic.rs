use std::time::Duration;

use proptest::prelude::*;

use super::Key;
use crate::{Algorithm, Quota, quota::HORIZON};

/// A request, and the settlement after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Nanoseconds since the previous request.
    pub(crate) wait: u64,
    pub(crate) cost: u64,
    pub(crate) want: u64,
    pub(crate) settle: Option<i64>,
}

/// Every algorithm once.
pub(super) const ALL: [Algorithm; 9] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::LeakyQueue {
        max_wait: Duration::from_secs(60),
    },
    Algorithm::FixedWindow { staggered: false },
    Algorithm::FixedWindowFromFirstRequest,
    Algorithm::SlidingWindow,
    Algorithm::SlidingWindowBuckets { count: 4 },
    Algorithm::SlidingWindowStrict { count: 4 },
    Algorithm::SlidingWindowLog,
];

pub(super) fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    (prop::sample::select(&ALL[..]), 2_u32..12, 1_u64..5).prop_map(|(one, n, waits)| match one {
        Algorithm::LeakyQueue { .. } => Algorithm::LeakyQueue {
            max_wait: Duration::from_nanos(waits * 777_777_777),
        },
        Algorithm::SlidingWindowBuckets { .. } => Algorithm::SlidingWindowBuckets { count: n },
        Algorithm::SlidingWindowStrict { .. } => Algorithm::SlidingWindowStrict { count: n },
        other => other,
    })
}

fn everyday_quota(algorithm: Algorithm) -> impl Strategy<Value = Quota> {
    let windows = prop::sample::select(vec![
        13,
        1_000_000,
        999_999_937,
        1_000_000_000,
        60_000_000_000,
        86_400_000_000_000,
    ]);
    (1_u64..200, windows, 1_u64..50).prop_filter_map(
        "cannot be built",
        move |(limit, window, burst)| {
            let quota = Quota::new(limit, Duration::from_nanos(window));
            let quota = match algorithm {
                Algorithm::TokenBucket | Algorithm::LeakyBucket => quota.burst(burst),
                // The model counts the places of a queue one by one.
                Algorithm::LeakyQueue { max_wait }
                    if max_wait.as_nanos() * u128::from(limit) / u128::from(window) > 2_000 =>
                {
                    return None;
                }
                _ => quota,
            };
            Key::new(algorithm, quota).is_ok().then_some(quota)
        },
    )
}

/// Pauses from a fraction of a token's time to several windows, rarely a day. Costs up to one above the burst.
fn steps(quota: Quota) -> impl Strategy<Value = Vec<Step>> {
    let window = u64::try_from(quota.window().as_nanos()).unwrap();
    let wait = prop_oneof![
        4 => 0..=2 * (window / quota.limit() + 1),
        2 => 0..=window,
        1 => 0..=3 * window,
        1 => Just(86_400_000_000_000 / 7),
    ];
    let burst = quota.burst_size();
    let cost = prop_oneof![0..=2_u64, 0..=burst + 1];
    let settle = prop::option::weighted(
        0.2,
        -(burst.cast_signed()) - 1..=burst.cast_signed() / 2 + 1,
    );
    // A window of some nanoseconds has few bits for debts, and drops the excess.
    let debts = window >= 1_000_000;
    let step =
        (wait, cost, 0..=burst + 2, settle).prop_map(move |(wait, cost, want, settle)| Step {
            wait,
            cost,
            want,
            settle: settle.filter(|_| debts),
        });
    prop::collection::vec(step, 1..40)
}

pub(crate) fn everyday() -> impl Strategy<Value = (Algorithm, Quota, Vec<Step>)> {
    any_algorithm()
        .prop_flat_map(|algorithm| {
            everyday_quota(algorithm).prop_map(move |quota| (algorithm, quota))
        })
        .prop_flat_map(|(algorithm, quota)| {
            steps(quota).prop_map(move |steps| (algorithm, quota, steps))
        })
}

/// Every size from 1 to `u64::MAX`, not only large numbers.
fn any_size() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0_u32..64).prop_map(|(bits, shift)| (bits >> shift).max(1))
}

/// Any policy that can be built, up to the limits.
pub(crate) fn any_built() -> impl Strategy<Value = (Algorithm, Quota)> {
    let horizon = u64::try_from(HORIZON.as_nanos()).unwrap();
    let sizes = (any_size(), any_size(), any_size(), any_size());
    (any_algorithm(), sizes).prop_map(move |(algorithm, (limit, window, burst, max_wait))| {
        let algorithm = match algorithm {
            Algorithm::LeakyQueue { .. } => Algorithm::LeakyQueue {
                max_wait: Duration::from_nanos(max_wait.min(horizon)),
            },
            Algorithm::FixedWindow { .. } => Algorithm::FixedWindow {
                staggered: max_wait % 2 == 0,
            },
            other => other,
        };
        let has_burst = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        let mut window = window.clamp(12, horizon);
        let mut limit = limit;
        // Reduced until it can be built, so that the bounds themselves are frequent.
        loop {
            let quota = Quota::new(limit, Duration::from_nanos(window));
            let quota = if has_burst {
                quota.burst(burst.min(1 << 61))
            } else {
                quota
            };
            if Key::new(algorithm, quota).is_ok() {
                return (algorithm, quota);
            }
            if limit > 1 {
                limit -= limit.div_ceil(16);
                limit = limit.max(1);
            } else {
                window = window.saturating_mul(2).min(horizon);
            }
        }
    })
}
