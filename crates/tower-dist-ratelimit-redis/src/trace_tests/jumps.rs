//! Limits after jumps of the server's clock.

use tower_dist_ratelimit::{Algorithm, Quota};

use super::{ALGORITHMS, START, lab::Lab, together::Together};

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3600 * SECOND;

/// Uses up a minute's limit, and then sends requests at `now` and later, in seconds, until a request passes. Each call
/// has a request of each name, and the first name's requests count.
fn recovery(
    lab: &Lab,
    (algorithm, dynamic): (Algorithm, bool),
    names: &[&str],
    full: u64,
    now: u64,
) -> u64 {
    lab.clear();
    let policy = Together::new(&[(algorithm, dynamic, Quota::per_minute(6))]);
    while policy.passes(lab, full, names) {}
    let refused = (0..200).find(|second| policy.passes(lab, now + second * SECOND, names));
    refused.unwrap_or_else(|| {
        panic!("{algorithm:?} with the keys {names:?} is still blocked after 200 s")
    })
}

/// A burst drains by one token in ten seconds, as without a jump. A window begins up to one window late.
#[test]
fn after_the_clock_jumps_back_an_hour_every_algorithm_recovers_within_a_window() {
    let lab = Lab::new();
    for names in [&["a"][..], &["a", "b"], &["a", "b", "a"]] {
        for policy in ALGORITHMS
            .into_iter()
            .flat_map(|algorithm| [(algorithm, false), (algorithm, true)])
        {
            let recovery = |full, now| recovery(&lab, policy, names, full, now);
            let expected = recovery(START, START);
            // A window takes 60 s, and the first token of the next sub-window comes after a tenth of it.
            assert!((1..=70).contains(&expected), "{policy:?}: {expected} s");
            let late = match policy.0 {
                Algorithm::FixedWindow { .. } | Algorithm::SlidingWindow => 60,
                Algorithm::SlidingWindowBuckets { count }
                | Algorithm::SlidingWindowStrict { count } => 60 / u64::from(count) + 1,
                _ => 0,
            };
            for (full, now) in [(START, START - HOUR), (START + HOUR, START)] {
                let after = recovery(full, now);
                assert!(
                    (expected..=expected + late).contains(&after),
                    "{policy:?} with the keys {names:?}, from {full} to {now}: {after} s, {expected} s without a jump"
                );
            }
        }
    }
}

/// After a failover, the new primary's clock can be a little behind.
#[test]
fn a_small_jump_back_to_the_previous_window_frees_only_the_tokens_of_its_time() {
    let lab = Lab::new();
    let border = (START / (60 * SECOND) + 1) * 60 * SECOND;
    for algorithm in ALGORITHMS {
        for dynamic in [false, true] {
            lab.clear();
            let policy = Together::new(&[(algorithm, dynamic, Quota::per_minute(60))]);
            let passes = |now| policy.passes(&lab, now, &["a"]);
            for _ in 0..59 {
                passes(border - SECOND);
            }
            while passes(border + SECOND) {}
            assert!(
                !passes(border - SECOND),
                "{algorithm:?}, dynamic: {dynamic}"
            );
            // A token per second comes back.
            let later = (0..10).filter(|_| passes(border + 2 * SECOND)).count();
            assert!(later <= 3, "{algorithm:?}, dynamic: {dynamic}: {later}");
        }
    }
}
