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

/// A burst drains by one token in ten seconds, and windows end, as without a jump.
#[test]
fn after_the_clock_jumps_back_an_hour_every_algorithm_recovers_as_if_it_had_not() {
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
            let back = recovery(START, START - HOUR);
            assert_eq!(back, expected, "{policy:?} with the keys {names:?}, back");
            let forth_and_back = recovery(START + HOUR, START);
            assert_eq!(
                forth_and_back, expected,
                "{policy:?} with the keys {names:?}, forth and back"
            );
        }
    }
}
