//! Limits after jumps of the server's clock.

use tower_dist_ratelimit::{Algorithm, Quota};

use super::{ALGORITHMS, START, lab::Lab, together::Together};

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3600 * SECOND;

/// Uses up a minute's limit, and then sends requests at `now` and later, in seconds, until a request passes.
fn recovery(lab: &Lab, algorithm: Algorithm, dynamic: bool, full: u64, now: u64) -> u64 {
    lab.clear();
    let mut policy = Together::new(&[(algorithm, dynamic, Quota::per_minute(6))]);
    while policy.passes(lab, full) {}
    let refused = (0..200).find(|second| policy.passes(lab, now + second * SECOND));
    refused.unwrap_or_else(|| panic!("{algorithm:?} is still blocked after 200 s"))
}

/// A burst drains by one token in ten seconds, and windows end, as without a jump.
#[test]
fn after_the_clock_jumps_back_an_hour_every_algorithm_recovers_as_if_it_had_not() {
    let lab = Lab::new();
    for algorithm in ALGORITHMS {
        for dynamic in [false, true] {
            let expected = recovery(&lab, algorithm, dynamic, START, START);
            // A window takes 60 s, and the first token of the next sub-window comes after a tenth of it.
            assert!((1..=70).contains(&expected), "{algorithm:?}: {expected} s");
            let back = recovery(&lab, algorithm, dynamic, START, START - HOUR);
            assert_eq!(back, expected, "{algorithm:?}, back");
            let forth_and_back = recovery(&lab, algorithm, dynamic, START + HOUR, START);
            assert_eq!(forth_and_back, expected, "{algorithm:?}, forth and back");
        }
    }
}
