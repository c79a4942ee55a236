use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;

use super::*;

const THREADS: u32 = 4;
const KEYS: usize = 12;

/// Every key has one token, which most rounds give back, so that partitions come and go all the time. Were one
/// forgotten while a thread is about to use it, its key would have two for that moment.
#[test]
fn threads_never_find_two_partitions_of_one_key() {
    let budgets = Budgets::new(one_token()).capacity(4);
    let out: [AtomicU32; KEYS] = Default::default();
    let work = |thread: usize| {
        let mut own = 0;
        for round in 0..30_000 {
            let key = (round * (2 * thread + 1)) % KEYS;
            let budget = budgets.get(&key);
            let Some(permit) = budget.withdraw() else {
                continue;
            };
            if budgets.0.is_shared(&budget) {
                continue;
            }
            own += 1;
            drop(budget);
            assert_eq!(out[key].fetch_add(1, SeqCst), 0, "one token, two permits");
            thread::yield_now();
            out[key].fetch_sub(1, SeqCst);
            drop(permit);
        }
        own
    };
    let own: u32 = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS as usize)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        let own = threads.into_iter().map(|thread| thread.join().unwrap());
        own.sum()
    });
    assert!(own > 0);
    assert!(budgets.0.partitions() <= 4);
}

#[test]
fn threads_get_no_more_than_there_is_room_for() {
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
