use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;

use super::*;

const THREADS: u32 = 4;
const KEYS: usize = 12;

/// The key has one token, which every round returns. Meanwhile other keys compete for its partition. If the partition
/// were evicted while a thread is about to use it, the key would have two tokens for a moment.
#[test]
fn threads_never_find_two_partitions_of_one_key() {
    let budgets = Budgets::new(one_token()).capacity(1);
    let (out, own) = (AtomicU32::new(0), AtomicU32::new(0));
    let work = || {
        for round in 0..60_000 {
            if round % 16 == 0 {
                // Other keys take its place if it is not in use.
                drop(budgets.get(&round));
            }
            let budget = budgets.get("one");
            if budgets.0.is_shared(&budget) {
                continue;
            }
            if let Some(permit) = budget.withdraw() {
                own.fetch_add(1, SeqCst);
                assert_eq!(out.fetch_add(1, SeqCst), 0, "one token, two permits");
                if round % 4 == 0 {
                    thread::yield_now();
                }
                out.fetch_sub(1, SeqCst);
                drop(permit);
            }
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    assert!(own.into_inner() > 0);
    assert_eq!(budgets.0.partitions(), 1);
}

#[test]
fn threads_get_no_more_than_the_capacity_allows() {
    let budgets = Budgets::new(Budget::ratio(1.0).burst(3)).capacity(4);
    let work = || {
        let (mut spent, mut deposits) = (0, 0);
        for round in 0..30_000 {
            let budget = budgets.get(&(round % KEYS));
            if let Some(permit) = budget.withdraw() {
                match round % 7 {
                    0 => {
                        permit.spend();
                        spent += 1;
                    }
                    1 => {
                        drop(budget);
                        permit.spend();
                        spent += 1;
                        budgets.get(&(round % KEYS)).deposit();
                        deposits += 1;
                    }
                    _ => drop(permit),
                }
            }
        }
        (spent, deposits)
    };
    let totals: Vec<(u32, u32)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let totals = threads.into_iter().map(|thread| thread.join().unwrap());
        totals.collect()
    });
    let (spent, deposits) = totals.iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert!(spent <= (4 + 1) * 3 + deposits, "{spent} > {deposits}");
}
