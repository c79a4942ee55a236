//! What becomes of limits when the server's clock jumps.

use tower_dist_ratelimit::{Algorithm, Quota};

use super::{ALGORITHMS, START, lab::Lab, together::Together};

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3600 * SECOND;

/// Uses up a minute's limit, and then asks by this clock: now and later, in seconds, until a request passes.
fn recovery(lab: &Lab, algorithm: Algorithm, dynamic: bool, full: u64, now: u64) -> u64 {
    lab.clear();
    let mut policy = Together::new(&[(algorithm, dynamic, Quota::per_minute(6))]);
    while policy.passes(lab, full) {}
    let refused = (0..200).find(|second| policy.passes(lab, now + second * SECOND));
    refused.unwrap_or_else(|| panic!("{algorithm:?} is still blocked after 200 s"))
}

/// As long as without a jump: a burst drains in ten seconds a token, and windows end.
#[test]
fn after_the_clock_jumps_back_an_hour_every_algorithm_recovers_as_if_it_had_not() {
    let lab = Lab::new();
    for algorithm in ALGORITHMS {
        for dynamic in [false, true] {
            let expected = recovery(&lab, algorithm, dynamic, START, START);
            // A window, and a tenth for the first of the next sub-window.
            assert!((1..=70).contains(&expected), "{algorithm:?}: {expected} s");
            let back = recovery(&lab, algorithm, dynamic, START, START - HOUR);
            assert_eq!(back, expected, "{algorithm:?}, back");
            let forth_and_back = recovery(&lab, algorithm, dynamic, START + HOUR, START);
            assert_eq!(forth_and_back, expected, "{algorithm:?}, forth and back");
        }
    }
}
