mod threads;
mod throttle;

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::{Instant, advance};

use super::bucket::{self, BudgetBucket};
use super::*;

impl Budget {
    /// Whether both budgets share their tokens.
    pub(super) fn is(&self, other: &Self) -> bool {
        let both = self.0.as_ref().zip(other.0.as_ref());
        both.is_some_and(|(a, b)| Arc::ptr_eq(a, b))
    }
}

/// Spends all remaining tokens. Returns their number.
pub(super) fn spend_all(budget: &Budget) -> u32 {
    let mut spent = 0;
    while let Some(permit) = budget.withdraw() {
        permit.spend();
        spent += 1;
    }
    spent
}

fn deposit(budget: &Budget, times: u32) {
    for _ in 0..times {
        budget.deposit();
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_starts_with_its_initial_tokens_and_ends_empty() {
    assert_eq!(spend_all(&Budget::ratio(0.2)), 10);
    assert_eq!(spend_all(&Budget::ratio(0.2).burst(7)), 7);
    assert_eq!(spend_all(&Budget::ratio(0.2).per_second(3)), 30);
    assert_eq!(spend_all(&Budget::ratio(0.2).per_second(10)), 100);
    assert_eq!(spend_all(&Budget::default()), 100);
    assert_eq!(spend_all(&Budget::ratio(0.2).per_second(10_000)), 100);
    assert_eq!(spend_all(&Budget::ratio(0.2).burst(7)), 7);
    assert_eq!(spend_all(&Budget::ratio(0.2).burst(7).initial(3)), 3);
    assert_eq!(spend_all(&Budget::ratio(0.2).initial(0)), 0);
    assert!(Budget::unlimited().withdraw().is_some());
}

/// tower 0.5.3 turns a ratio of 0.6 into 100 % (tower#857).
#[test]
fn a_ratio_is_exact() {
    for (ratio, deposits, tokens) in [
        (0.6, 100, 60),
        (0.2, 5, 1),
        (0.2, 4, 0),
        (0.29, 100, 29),
        (0.1, 10, 1),
        (1.0, 3, 3),
        (2.5, 2, 5),
        (1.0 / 3.0, 3, 0),
        (0.0, 100, 0),
    ] {
        let budget = Budget::ratio(ratio).initial(0);
        deposit(&budget, deposits);
        assert_eq!(spend_all(&budget), tokens, "{ratio} of {deposits}");
    }
}

#[test]
fn deposits_into_a_full_bucket_are_lost() {
    let budget = Budget::ratio(1.0).burst(3);
    deposit(&budget, 1_000);
    assert_eq!(spend_all(&budget), 3);
}

#[test]
fn a_deposit_into_a_full_bucket_reads_no_clock() {
    let no_clock = || unreachable!("reads the clock");
    let bucket = BudgetBucket::new(0.5, 2, 2);
    bucket.deposit(no_clock);
    assert!(bucket.withdraw(|| 0));
    bucket.deposit(|| 500_000);
    bucket.deposit(no_clock);
    assert!(bucket.withdraw(|| 500_000));
    bucket.deposit(|| 500_000);
    bucket.refund();
    bucket.deposit(|| 500_000);
    bucket.deposit(no_clock);
}

#[test]
fn an_unspent_permit_returns_its_token() {
    let budget = Budget::ratio(0.0).burst(1);
    let permit = budget.withdraw().unwrap();
    assert!(budget.withdraw().is_none());
    drop(permit);
    assert_eq!(spend_all(&budget), 1);
}

#[tokio::test(start_paused = true)]
async fn available_tokens_can_be_withdrawn() {
    let budget = Budget::ratio(0.5).per_second(1).burst(3).initial(1);
    for (available, seconds) in [(1, 0), (2, 1), (3, 2)] {
        let budget = budget.clone().initial(1);
        advance(Duration::from_millis(seconds * 1_000)).await;
        assert_eq!(budget.available(), available);
        assert_eq!(spend_all(&budget), available);
        assert_eq!(budget.available(), 0);
        deposit(&budget, 3);
        assert_eq!(budget.available(), 1, "one and a half");
    }
    assert_eq!(Budget::unlimited().available(), u32::MAX);
    let throttle = Budget::grpc_throttle(2, 1.0);
    assert_eq!(throttle.available(), u32::MAX);
    throttle.record_failure();
    assert_eq!(throttle.available(), 0);
}

#[test]
fn clones_share_and_setters_do_not() {
    let budget = Budget::ratio(0.0).burst(3);
    let same = budget.clone();
    let other = budget.clone().initial(3);
    assert_eq!(spend_all(&same), 3);
    assert_eq!(spend_all(&budget), 0);
    assert_eq!(spend_all(&other), 3);
}

#[tokio::test(start_paused = true)]
async fn tokens_return_with_time_to_the_nanosecond() {
    let budget = Budget::ratio(0.0).per_second(3).burst(2);
    assert_eq!(spend_all(&budget), 2);
    // A third of a second, rounded up to the nanosecond.
    advance(Duration::from_nanos(333_333_333)).await;
    assert_eq!(spend_all(&budget), 0);
    advance(Duration::from_nanos(1)).await;
    assert_eq!(spend_all(&budget), 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_idle_time_fills_the_bucket_and_no_more() {
    let budget = Budget::default();
    assert_eq!(spend_all(&budget), 100);
    advance(Duration::from_secs(365 * 24 * 3600)).await;
    assert_eq!(spend_all(&budget), 100);
    deposit(&budget, 5);
    assert_eq!(spend_all(&budget), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_drifts_over_days_at_an_awkward_rate() {
    let budget = Budget::ratio(0.0).per_second(3).burst(u32::MAX);
    let budget = budget.initial(0);
    let (mut elapsed, mut spent) = (Duration::ZERO, 0);
    for _ in 0..5 {
        let day = Duration::from_nanos(86_400_333_333_333);
        advance(day).await;
        elapsed += day;
        spent += spend_all(&budget);
        assert_eq!(u128::from(spent), elapsed.as_nanos() * 3 / 1_000_000_000);
    }
}

#[test]
fn a_wrong_value_is_named_with_its_bound() {
    for (budget, message) in [
        (
            Budget::ratio(f64::NAN),
            "budget.ratio is NaN, but must be from 0 to 10 extra attempts per deposit",
        ),
        (
            Budget::ratio(-0.1),
            "budget.ratio is -0.1, but must be from 0 to 10 extra attempts per deposit",
        ),
        (
            Budget::ratio(20.0),
            "budget.ratio is 20.0, but must be from 0 to 10 extra attempts per deposit",
        ),
        (
            Budget::ratio(0.2).per_second(u32::MAX),
            "budget.per_second is 4294967295, but must be at most 10000; for no bound use Budget::unlimited()",
        ),
        (
            Budget::ratio(0.2).burst(0),
            "budget.burst is 0, but must be at least 1; to switch extra attempts off use Mode::Off",
        ),
        (
            Budget::ratio(0.2).burst(5).initial(6),
            "budget.initial is 6, but must be at most the burst of 5",
        ),
    ] {
        assert_eq!(budget.validate().unwrap_err().to_string(), message);
        // A budget that was not validated is still safe to use.
        budget.deposit();
        drop(budget.withdraw());
    }
    for budget in [
        Budget::default(),
        Budget::ratio(0.0),
        Budget::ratio(10.0).per_second(10_000).burst(u32::MAX),
        Budget::unlimited().burst(0),
    ] {
        budget.validate().unwrap();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Deposit,
    Withdraw,
    Refund,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..2_000_000_000_u64).prop_map(Step::Wait),
        Just(Step::Deposit),
        Just(Step::Withdraw),
        Just(Step::Refund),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    /// The word agrees with a bucket that counts in millionths of a token.
    #[test]
    fn the_word_is_a_token_bucket(
        steps in steps(),
        millionths in 0..3_000_000_u32,
        per_second in 0..50_u32,
        burst in 1..20_u32,
    ) {
        let (bucket, ratio) = (u128::from(burst) * 1_000_000, f64::from(millionths) / 1e6);
        let subject = BudgetBucket::new(ratio, burst, burst);
        let (mut tokens, mut clock, mut held) = (bucket, Duration::ZERO, 0_u32);
        let mut refilled = 0_u128;
        for step in steps {
            let now = || bucket::units(clock, per_second);
            match step {
                Step::Wait(nanos) => {
                    clock += Duration::from_nanos(nanos);
                    let total = clock.as_nanos() * u128::from(per_second) / 1_000;
                    tokens = bucket.min(tokens + total - refilled);
                    refilled = total;
                }
                Step::Deposit => {
                    subject.deposit(now);
                    tokens = bucket.min(tokens + u128::from(millionths));
                }
                Step::Withdraw => {
                    let expected = tokens >= 1_000_000;
                    prop_assert_eq!(subject.withdraw(now), expected);
                    if expected {
                        tokens -= 1_000_000;
                        held += 1;
                    }
                }
                Step::Refund if held > 0 => {
                    subject.refund();
                    held -= 1;
                    tokens = bucket.min(tokens + 1_000_000);
                }
                Step::Refund => {}
            }
        }
    }
}
