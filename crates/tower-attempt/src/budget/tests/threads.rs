use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::{mem, thread};

use super::*;

const THREADS: u32 = 8;
/// Enough rounds for contention on two cores.
const ROUNDS: u32 = 50_000;

/// Deposits and withdraws from many threads, and returns every third permit. Returns the number of spent permits.
fn hammer(budget: &Budget) -> u32 {
    let start = Barrier::new(THREADS as usize);
    let work = || {
        start.wait();
        let mut spent = 0;
        for round in 0..ROUNDS {
            budget.deposit();
            match budget.withdraw() {
                Some(permit) if round % 3 == 0 => drop(permit),
                Some(permit) => {
                    permit.spend();
                    spent += 1;
                }
                None => {}
            }
        }
        spent
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let spent = threads.into_iter().map(|thread| thread.join().unwrap());
        spent.sum()
    })
}

/// tower 0.5.3 checks and takes in two steps, so that threads overdraw it.
#[test]
fn threads_spend_exactly_the_tokens_that_were_added() {
    let budget = Budget::ratio(0.5).burst(u32::MAX).initial(10);
    let spent = hammer(&budget);
    assert_eq!(spent + spend_all(&budget), 10 + THREADS * ROUNDS / 2);
}

/// Uses the real clock, because threads may read it in another order than they take tokens.
#[test]
fn threads_stay_within_burst_and_rate_and_ratio() {
    for (per_second, burst) in [(10_000, 1), (1_000, 50)] {
        let start = Instant::now();
        let budget = Budget::ratio(0.1).per_second(per_second).burst(burst);
        let spent = hammer(&budget);
        // At least as long as the interval in which the bucket was used.
        let millis = start.elapsed().as_millis() + 1;
        let by_time = millis * u128::from(per_second) / 1_000;
        let bound = u128::from(burst + THREADS * ROUNDS / 10) + by_time;
        assert!(u128::from(spent) <= bound, "{spent} > {bound}");
    }
}

#[test]
fn a_thread_that_panics_returns_its_permits() {
    let budget = Budget::ratio(0.0).burst(THREADS * 2).initial(THREADS * 2);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let attempt = AssertUnwindSafe(|| {
                    let permits = [budget.withdraw(), budget.withdraw()];
                    assert!(permits.iter().all(Option::is_some));
                    // Skips the panic hook, which would print the panic.
                    resume_unwind(Box::new("the attempt panics"));
                });
                let caught: Result<(), _> = catch_unwind(attempt);
                mem::drop(caught.unwrap_err());
            });
        }
    });
    assert_eq!(spend_all(&budget), THREADS * 2);
}
