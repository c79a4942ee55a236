//! Of any bucket and any requests.

use proptest::prelude::*;

use super::*;

/// The algorithm by the book, in exact fractions: a level that grows with time, in tokens times the window.
struct Exact {
    quota: Quota,
    level: u128,
    seen: u64,
}

impl Exact {
    fn new(quota: Quota) -> Self {
        Self {
            quota,
            level: Self::full(quota),
            seen: 0,
        }
    }

    fn full(quota: Quota) -> u128 {
        u128::from(quota.burst_size()) * quota.window().as_nanos()
    }

    fn admits(&mut self, nanos: u64, cost: u64) -> bool {
        let gained = u128::from(nanos - self.seen) * u128::from(self.quota.limit());
        self.level = self
            .level
            .saturating_add(gained)
            .min(Self::full(self.quota));
        self.seen = nanos;
        let cost = u128::from(cost) * self.quota.window().as_nanos();
        let admits = cost <= self.level;
        if admits {
            self.level -= cost;
        }
        admits
    }
}

/// Every size from 1 to u64::MAX, not only the large ones.
fn any_size() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0_u32..64).prop_map(|(bits, shift)| (bits >> shift).max(1))
}

fn everyday_quota() -> impl Strategy<Value = Quota> {
    let windows = prop::sample::select(vec![
        1,
        7,
        1_000_000,
        999_999_937,
        1_000_000_000,
        60_000_000_000,
        DAY,
    ]);
    (1_u64..2_000_000, windows, 1_u64..50).prop_filter_map("too fast", |(limit, window, burst)| {
        let quota = Quota::new(limit, Duration::from_nanos(window)).burst(burst);
        Bucket::<false>::new(quota, None).is_ok().then_some(quota)
    })
}

/// Any quota that can be built, up to the limits.
fn any_quota() -> impl Strategy<Value = Quota> {
    (any_size(), any_size(), any_size()).prop_filter_map(
        "cannot be built",
        |(limit, window, burst)| {
            let quota = Quota::new(limit, Duration::from_nanos(window)).burst(burst);
            Bucket::<false>::new(quota, None).is_ok().then_some(quota)
        },
    )
}

/// Times between requests, about as long as some tokens take, and costs up to a bit above the burst.
fn requests(quota: Quota) -> impl Strategy<Value = Vec<(u64, u64)>> {
    let per_token = u64::try_from(quota.window().as_nanos()).unwrap() / quota.limit() + 1;
    prop::collection::vec((0..=3 * per_token, 0..=quota.burst_size() + 1), 1..60)
}

fn everyday_traffic() -> impl Strategy<Value = (Quota, Vec<(u64, u64)>)> {
    everyday_quota()
        .prop_flat_map(|quota| requests(quota).prop_map(move |requests| (quota, requests)))
}

/// Times between requests that come at twice the rate or faster, which keeps a bucket of two tokens or more from
/// ever being full again.
fn overload() -> impl Strategy<Value = (Quota, Vec<u64>)> {
    everyday_quota().prop_flat_map(|quota| {
        let quota = quota.burst(quota.burst_size() + 1);
        let half = u64::try_from(quota.window().as_nanos()).unwrap() / quota.limit() / 2;
        prop::collection::vec(0..=half, 1..200).prop_map(move |waits| (quota, waits))
    })
}

proptest! {
    #[test]
    fn any_window_admits_at_most_burst_plus_rate((quota, requests) in everyday_traffic()) {
        let bucket = bucket(quota);
        let (mut nanos, mut full_at, mut admitted) = (0, 0, Vec::new());
        for (wait, cost) in requests {
            nanos += wait;
            if let (Some(next), _) = charge(&bucket, full_at, at(&bucket, nanos), cost) {
                full_at = next;
                admitted.push((nanos, cost));
            }
        }
        for (first, &(start, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for &(end, cost) in &admitted[first..] {
                sum += u128::from(cost);
                // Less than a nanosecond early: the fraction of a unit that `start` was rounded down by.
                let window = quota.window().as_nanos();
                let gained = u128::from(end - start + 1) * u128::from(quota.limit());
                prop_assert!(sum * window <= u128::from(quota.burst_size()) * window + gained);
            }
        }
    }

    /// Not even by a fraction of a nanosecond.
    #[test]
    fn a_token_of_whole_nanoseconds_never_comes_early(
        (limit, per_token, burst) in (1_u64..1_000, 1_u64..=2 * DAY, 1_u64..50),
        steps in prop::collection::vec((0_u64..3, 0_u64..3, 0_u64..4), 1..60),
    ) {
        let quota = Quota::new(limit, Duration::from_nanos(limit * per_token)).burst(burst);
        let bucket = bucket(quota);
        let mut exact = Exact::new(quota);
        let (mut nanos, mut full_at) = (0_u64, 0);
        for (tokens, more, cost) in steps {
            // Just before a token comes, just then, and just after.
            nanos += (tokens * per_token + more).saturating_sub(1);
            let (next, decision) = charge(&bucket, full_at, at(&bucket, nanos), cost);
            full_at = next.unwrap_or(full_at);
            prop_assert_eq!(decision.allowed, exact.admits(nanos, cost));
        }
    }

    /// A full bucket forgets its difference from the exact count, so no bucket here is full.
    #[test]
    fn under_load_the_count_is_the_exact_one_give_or_take_one((quota, waits) in overload()) {
        let bucket = bucket(quota);
        let mut exact = Exact::new(quota);
        let (mut nanos, mut full_at, mut ours, mut theirs) = (0, 0, 0_i64, 0_i64);
        for wait in waits {
            nanos += wait;
            let (next, decision) = charge(&bucket, full_at, at(&bucket, nanos), 1);
            full_at = next.unwrap_or(full_at);
            ours += i64::from(decision.allowed);
            theirs += i64::from(exact.admits(nanos, 1));
            prop_assert!((ours - theirs).abs() <= 1, "{ours} of {theirs}");
        }
    }

    #[test]
    fn rejected_just_before_retry_after_and_allowed_at_it((quota, requests) in everyday_traffic()) {
        let bucket = bucket(quota);
        let (mut nanos, mut full_at) = (0, 0);
        for (wait, cost) in requests {
            nanos += wait;
            let (next, decision) = charge(&bucket, full_at, at(&bucket, nanos), cost);
            prop_assert_eq!(next.is_some(), decision.allowed && cost > 0, "a rejection writes nothing");
            prop_assert_eq!(decision.retry_after.is_none(), cost > quota.burst_size());
            if let (false, Some(wait)) = (decision.allowed, decision.retry_after) {
                let wait = u64::try_from(wait.as_nanos()).unwrap();
                prop_assert!(!charge(&bucket, full_at, at(&bucket, nanos + wait - 1), cost).1.allowed);
                prop_assert!(charge(&bucket, full_at, at(&bucket, nanos + wait), cost).1.allowed);
            }
            full_at = next.unwrap_or(full_at);
        }
    }

    #[test]
    fn the_bucket_is_full_at_reset_after_and_not_before((quota, requests) in everyday_traffic()) {
        let bucket = bucket(quota);
        let (mut nanos, mut full_at) = (0, 0);
        for (wait, cost) in requests {
            nanos += wait;
            let (next, decision) = charge(&bucket, full_at, at(&bucket, nanos), cost);
            full_at = next.unwrap_or(full_at);
            let full = nanos + u64::try_from(decision.reset_after.as_nanos()).unwrap();
            prop_assert!(at(&bucket, full).units >= full_at);
            prop_assert!(full == nanos || at(&bucket, full - 1).units < full_at);
        }
    }

    #[test]
    fn nothing_overflows_under_any_policy(
        quota in any_quota(),
        steps in prop::collection::vec((any_size(), any_size(), any::<i64>()), 1..20),
    ) {
        let bucket = bucket(quota);
        let mut full_at = 0;
        for (nanos, cost, delta) in steps {
            // Times in any order: also a clock that jumps back.
            let now = at(&bucket, nanos);
            let (next, decision) = charge(&bucket, full_at, now, cost.min(quota.burst_size()));
            prop_assert!(decision.remaining <= quota.burst_size());
            full_at = next.unwrap_or(full_at);
            full_at = settle(&bucket, full_at, now, delta).unwrap_or(full_at);
        }
    }

    #[test]
    fn a_clock_that_jumps_back_admits_nothing_more((quota, requests) in everyday_traffic(), back in any_size()) {
        let bucket = bucket(quota);
        let (mut nanos, mut full_at) = (0, 0);
        for (wait, cost) in requests {
            nanos += wait;
            let (next, now) = charge(&bucket, full_at, at(&bucket, nanos), cost);
            let (_, before) = charge(&bucket, full_at, at(&bucket, nanos.saturating_sub(back)), cost);
            prop_assert!(now.allowed || !before.allowed);
            prop_assert!(before.remaining <= now.remaining + cost);
            full_at = next.unwrap_or(full_at);
        }
    }
}
