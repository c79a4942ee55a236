//! Numbers that an algorithm cannot represent.

use super::*;

fn rejected(policy: Policy) -> (String, String, String) {
    let error: BuildError = Limiter::new(Memory::default(), policy).unwrap_err();
    assert_eq!(error.policy(), Some("p"));
    let [field, value, bound] = [error.field(), error.value(), error.bound()].map(str::to_owned);
    (field, value, bound)
}

fn expect(field: &str, value: impl ToString, bound: &str) -> (String, String, String) {
    (field.to_owned(), value.to_string(), bound.to_owned())
}

#[test]
fn numbers_that_an_algorithm_cannot_represent_are_rejected() {
    let max = u64::MAX;
    for count in [0, 1, 101, u32::MAX] {
        let expected = |field| expect(field, count, "2 to 100");
        let sub_windows = rejected(per_minute(5).sliding_window_buckets(count));
        assert_eq!(sub_windows, expected("sliding_window_buckets"));
        let whole = rejected(per_minute(5).sliding_window_strict(count));
        assert_eq!(whole, expected("sliding_window_strict"));
    }
    assert_eq!(
        rejected(
            Policy::new("p", Quota::new(1, Duration::from_nanos(3))).sliding_window_buckets(4)
        ),
        expect("window", "3ns", "at least 4ns, one for each sub-window")
    );
    assert_eq!(
        rejected(per_minute(10_001).sliding_window_log()),
        expect("limit", 10_001, "at most 10000 with a sliding log")
    );
    assert_eq!(
        rejected(per_minute(max).sliding_window_log()),
        expect("limit", max, "at most 10000 with a sliding log")
    );
    let waits = "above 0 and at most 100 years";
    assert_eq!(
        rejected(per_minute(1).leaky_queue(Duration::ZERO)),
        expect("max_wait", "0ns", waits)
    );
    let forever = format!("{:?}", Duration::MAX);
    assert_eq!(
        rejected(per_minute(1).leaky_queue(Duration::MAX)),
        expect("max_wait", forever, waits)
    );
    assert_eq!(
        rejected(per_minute(max).fixed_window()),
        expect(
            "limit",
            max,
            "at most 274877906943 in a fixed window of 60s"
        )
    );
    for of in [
        Policy::fixed_window_from_first_request,
        Policy::sliding_window,
    ] {
        assert_eq!(
            rejected(of(per_minute(max))),
            expect("limit", max, "at most 2305843009213693952")
        );
    }
    for (name, of) in ALL {
        assert_eq!(
            rejected(of(per_minute(0))),
            expect("limit", 0, "at least 1"),
            "{name}"
        );
        let endless = Policy::new("p", Quota::new(1, Duration::MAX));
        assert_eq!(rejected(of(endless)).2, "at most 100 years", "{name}");
        let none = Policy::new("p", Quota::new(1, Duration::ZERO));
        assert_eq!(
            rejected(of(none)),
            expect("window", "0ns", "at least 1ns"),
            "{name}"
        );
    }
}

#[test]
fn a_burst_is_rejected_by_algorithms_without_one() {
    let bound = "the limit, 10: only token and leaky buckets have a burst";
    for (name, of) in ALL.into_iter().skip(2) {
        let burst = Policy::new("p", Quota::per_minute(10).burst(5));
        assert_eq!(rejected(of(burst)), expect("burst", 5, bound), "{name}");
    }
}

#[test]
fn a_cost_is_bounded_by_the_capacity_of_the_algorithm() {
    for (index, (name, of)) in ALL.into_iter().enumerate() {
        let largest = if index < 2 { "burst" } else { "limit" };
        let bound = format!("at most the {largest}, 5");
        let costing = of(per_minute(5)).cost(6);
        assert_eq!(rejected(costing), expect("cost", 6, &bound), "{name}");
    }
}
