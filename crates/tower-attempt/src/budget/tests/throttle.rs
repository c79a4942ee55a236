use std::thread;

use proptest::prelude::*;

use crate::Budget;

fn fail(budget: &Budget, times: u32) {
    for _ in 0..times {
        budget.record_failure();
    }
}

fn succeed(budget: &Budget, times: u32) {
    for _ in 0..times {
        budget.deposit();
    }
}

fn is_open(budget: &Budget) -> bool {
    budget.withdraw().is_some()
}

/// The example of gRFC A6.
#[test]
fn the_example_of_grfc_a6_holds() {
    let budget = Budget::grpc_throttle(10, 0.1);
    fail(&budget, 4);
    assert!(is_open(&budget), "6 is above 5");
    fail(&budget, 1);
    assert!(!is_open(&budget), "5 is not");
    succeed(&budget, 1);
    assert!(is_open(&budget), "5.1 is");
    fail(&budget, 1);
    succeed(&budget, 9);
    assert!(!is_open(&budget), "4.1 + 0.9 is 5");
    succeed(&budget, 1);
    assert!(is_open(&budget));
}

/// gRFC A6 on its example: "Throttles when the ratio of failures to successes exceeds ~10 %".
#[test]
fn a_throttle_allows_its_ratio_of_failures_and_no_more() {
    let (at, above) = (
        Budget::grpc_throttle(10, 0.1),
        Budget::grpc_throttle(10, 0.1),
    );
    for _ in 0..1_000 {
        fail(&at, 1);
        succeed(&at, 10);
        fail(&above, 1);
        succeed(&above, 9);
    }
    assert!(is_open(&at));
    assert!(!is_open(&above));
}

#[test]
fn the_count_stays_between_nothing_and_its_maximum() {
    let budget = Budget::grpc_throttle(10, 0.1);
    succeed(&budget, 1_000);
    fail(&budget, 5);
    assert!(!is_open(&budget), "successes beyond the maximum are lost");
    fail(&budget, 1_000);
    succeed(&budget, 50);
    assert!(!is_open(&budget), "failures below nothing are lost");
    succeed(&budget, 1);
    assert!(is_open(&budget));
}

#[test]
fn half_of_an_odd_maximum_is_exact() {
    let budget = Budget::grpc_throttle(5, 0.5);
    fail(&budget, 2);
    assert!(is_open(&budget), "3 is above 2.5");
    fail(&budget, 1);
    succeed(&budget, 1);
    assert!(!is_open(&budget), "2.5 is not");
    let budget = Budget::grpc_throttle(1, 0.5);
    assert!(is_open(&budget));
    fail(&budget, 1);
    succeed(&budget, 1);
    assert!(!is_open(&budget));
}

/// gRFC A6 supports up to three decimal places.
#[test]
fn a_ratio_counts_to_the_thousandth_rounded_down() {
    for (ratio, successes) in [(0.29, 100), (0.001, 29_000), (0.290_9, 100), (29.0, 1)] {
        let budget = Budget::grpc_throttle(58, ratio);
        fail(&budget, 58);
        succeed(&budget, successes);
        assert!(!is_open(&budget), "{ratio}: 29 is not above 29");
        succeed(&budget, 1);
        assert!(is_open(&budget), "{ratio}");
    }
}

#[test]
fn extra_attempts_take_no_tokens_and_permits_return_none() {
    let budget = Budget::grpc_throttle(2, 1.0);
    let permits: Vec<_> = (0..100).map(|_| budget.withdraw().unwrap()).collect();
    assert!(is_open(&budget));
    fail(&budget, 1);
    drop(permits);
    assert!(!is_open(&budget));
}

#[test]
fn failures_do_not_count_in_other_budgets() {
    let limited = Budget::ratio(0.0).burst(1);
    for budget in [&limited, &Budget::unlimited()] {
        fail(budget, 10);
        assert!(is_open(budget));
    }
}

#[test]
fn clones_share_the_count_and_setters_change_nothing() {
    let budget = Budget::grpc_throttle(2, 1.0);
    let clone = budget.clone().per_second(10_000).burst(100).initial(100);
    fail(&clone, 1);
    assert!(!is_open(&budget));
}

#[test]
fn a_wrong_value_is_named_with_its_bound() {
    let ratio = "budget.token_ratio is";
    let tokens = "budget.max_tokens is";
    for (max_tokens, token_ratio, message) in [
        (
            0,
            0.1,
            format!("{tokens} 0, but must be from 1 to 1000 tokens"),
        ),
        (
            1_001,
            0.1,
            format!("{tokens} 1001, but must be from 1 to 1000 tokens"),
        ),
        (
            10,
            0.0,
            format!("{ratio} 0.0, but must be at least 0.001 tokens per success"),
        ),
        (
            10,
            0.000_9,
            format!("{ratio} 0.0009, but must be at least 0.001 tokens per success"),
        ),
        (
            10,
            -1.0,
            format!("{ratio} -1.0, but must be at least 0.001 tokens per success"),
        ),
        (
            10,
            f64::NAN,
            format!("{ratio} NaN, but must be at least 0.001 tokens per success"),
        ),
        (
            10,
            f64::INFINITY,
            format!("{ratio} inf, but must be at least 0.001 tokens per success"),
        ),
    ] {
        let budget = Budget::grpc_throttle(max_tokens, token_ratio);
        assert_eq!(budget.validate().unwrap_err().to_string(), message);
        // A throttle that was not validated is still safe to use.
        budget.record_failure();
        budget.deposit();
        drop(budget.withdraw());
    }
    for (max_tokens, token_ratio) in [(1, 0.001), (1_000, 1_000.0), (1, f64::MAX)] {
        let budget = Budget::grpc_throttle(max_tokens, token_ratio);
        budget.validate().unwrap();
        fail(&budget, 1_000);
        succeed(&budget, 2);
    }
}

/// The count stays far from both ends, so every change counts and the order does not matter.
#[test]
fn threads_lose_no_failure_and_no_success() {
    let budget = Budget::grpc_throttle(1_000, 0.05);
    fail(&budget, 100);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..1_500 {
                    budget.deposit();
                    if round % 15 < 2 {
                        budget.record_failure();
                    }
                }
            });
        }
    });
    // 900 − 4 · 200 + 4 · 75 = 400, and 100 more are half.
    succeed(&budget, 2_000);
    assert!(!is_open(&budget));
    succeed(&budget, 1);
    assert!(is_open(&budget));
}

proptest! {
    /// The word agrees with a count in thousandths.
    #[test]
    fn the_throttle_is_the_count_of_the_specification(
        outcomes in proptest::collection::vec(any::<bool>(), 1..300),
        max_tokens in 1..20_u32,
        thousandths in 1..3_000_u32,
    ) {
        let budget = Budget::grpc_throttle(max_tokens, f64::from(thousandths) / 1e3);
        let mut count = max_tokens * 1_000;
        for went_well in outcomes {
            if went_well {
                budget.deposit();
                count = (count + thousandths).min(max_tokens * 1_000);
            } else {
                budget.record_failure();
                count = count.saturating_sub(1_000);
            }
            prop_assert_eq!(is_open(&budget), count * 2 > max_tokens * 1_000);
        }
    }
}
