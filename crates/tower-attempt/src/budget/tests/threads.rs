use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::{mem, thread};

use super::*;

const THREADS: u32 = 8;
/// Enough that threads meet in the word on two cores.
const ROUNDS: u32 = 50_000;

/// Deposits and withdraws from many threads, gives every third permit back, and tells how many were spent.
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
fn threads_spend_what_was_given_and_not_a_token_more_or_less() {
    let budget = Budget::ratio(0.5).burst(u32::MAX).initial(10);
    let spent = hammer(&budget);
    assert_eq!(spent + spend_all(&budget), 10 + THREADS * ROUNDS / 2);
}

/// On the machine's own clock: threads read it in an order other than that in which they take tokens.
#[test]
fn threads_stay_within_burst_and_rate_and_ratio() {
    for (per_second, burst) in [(10_000, 1), (1_000, 50)] {
        let start = Instant::now();
        let budget = Budget::ratio(0.1).per_second(per_second).burst(burst);
        let spent = hammer(&budget);
        // Of the same length as any interval in which the bucket was used, or longer.
        let millis = start.elapsed().as_millis() + 1;
        let by_time = millis * u128::from(per_second) / 1_000;
        let bound = u128::from(burst + THREADS * ROUNDS / 10) + by_time;
        assert!(u128::from(spent) <= bound, "{spent} > {bound}");
    }
}

#[test]
fn a_thread_that_panics_gives_its_permits_back() {
    let budget = Budget::ratio(0.0).burst(THREADS * 2).initial(THREADS * 2);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let attempt = AssertUnwindSafe(|| {
                    let permits = [budget.withdraw(), budget.withdraw()];
                    assert!(permits.iter().all(Option::is_some));
                    // Without the hook that prints it.
                    resume_unwind(Box::new("the attempt panics"));
                });
                let caught: Result<(), _> = catch_unwind(attempt);
                mem::drop(caught.unwrap_err());
            });
        }
    });
    assert_eq!(spend_all(&budget), THREADS * 2);
}
