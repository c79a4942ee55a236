//! Machines whose clocks differ charge one key, each with a quota of its own.

use std::time::Duration;

use proptest::prelude::*;

use super::{
    Key,
    overrides::{by, drains},
    traffic::{ALL, any_algorithm},
};
use crate::{Algorithm, Quota};

const SECOND: u64 = 1_000_000_000;

fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    let windows = prop::sample::select(vec![13_000_000, 999_999_937, SECOND, 60 * SECOND]);
    let quota = (1_u64..1_000, windows, 1_u64..300);
    let quota = quota.prop_map(|(limit, window, burst)| {
        Quota::new(limit, Duration::from_nanos(window)).burst(burst)
    });
    prop::collection::vec(quota, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Compares each charge by a clock that is behind with the same charge at the time of the key's last write.
    #[test]
    fn a_charge_by_a_clock_that_is_behind_finds_and_leaves_no_more_free_tokens(
        algorithm in any_algorithm(),
        quotas in quotas(),
        charges in prop::collection::vec(
            (0..SECOND, 0..SECOND, 0_u32..30, any::<usize>(), 0_u64..20, prop::option::weighted(0.2, -20_i64..20)),
            1..40,
        ),
    ) {
        let mut key = Key::dynamic(algorithm, Quota::new(100, Duration::from_secs(1))).unwrap();
        let (mut now, mut written) = (0, 0);
        for (wait, skew, shift, which, cost, delta) in charges {
            now += wait >> shift;
            let at = now.saturating_sub(skew >> shift);
            let latest = at.max(written);
            let take = by(&quotas[which % quotas.len()], cost);
            let (ours, theirs) = (key.decide(at, &take), key.decide(latest, &take));
            prop_assert!(theirs.allowed || !ours.allowed, "{ours:?}, but {theirs:?}");
            let most = theirs.remaining + theirs.granted;
            prop_assert!(ours.remaining + ours.granted <= most, "{ours:?}, but {theirs:?}");
            // A refund by a window or a log deletes the time of the last write.
            let delta = delta.filter(|&delta| delta > 0 || drains(algorithm));
            let (before, mut expected) = (key.bytes(), key.clone());
            for (key, at) in [(&mut key, at), (&mut expected, latest)] {
                match delta {
                    Some(delta) => drop(key.settle_by(at, &take, delta)),
                    None if ours.allowed => key.take(at, &take, ours.granted),
                    None => key.adopt(at, &take),
                }
            }
            if key.bytes() != before {
                written = latest;
            }
            for quota in &quotas {
                for time in [latest, latest + (skew >> shift), latest + SECOND] {
                    let [ours, theirs] = [&key, &expected].map(|key| key.decide(time, &by(quota, 0)));
                    prop_assert!(ours.remaining <= theirs.remaining, "{ours:?}, but {theirs:?} at {time}");
                }
            }
        }
    }
}

/// A machine whose clock is 10 ms behind charges with a quota of 100 per second, in turn with a machine whose quota is
/// 1 per second.
#[test]
fn two_machines_with_two_quotas_and_two_clocks_admit_at_most_the_faster_quota() {
    let [fast, slow] = [100, 1].map(Quota::per_second);
    for mut algorithm in ALL {
        if let Algorithm::LeakyQueue { max_wait } = &mut algorithm {
            *max_wait = fast.window();
        }
        let mut key = Key::dynamic(algorithm, fast).unwrap();
        let mut admitted = 0;
        let times = (100 * SECOND..110 * SECOND).step_by(1_000_000);
        for (now, number) in times.zip(0_u32..) {
            let (at, quota) = match number % 2 {
                0 => (now - 10_000_000, &fast),
                _ => (now, &slow),
            };
            admitted += key.charge_by(at, &by(quota, 1)).granted;
        }
        // The burst, window or queue of a second at the start, then ten seconds.
        assert!(admitted <= 1_101, "{algorithm:?}: {admitted}");
    }
}
