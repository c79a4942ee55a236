//! `Memory` under load.

mod places;
#[cfg(feature = "processor-clock")]
mod processor_clock;
mod quotas;

use std::sync::{
    Arc, Barrier,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use std::thread;

use tower_dist_ratelimit::{
    Decision, Decisions, Policy, Quota,
    backend::{Answer, Backend, Charge, Memory, PolicyId},
};

/// So slow that no token comes back during a test, even without a paused clock.
fn frozen(burst: u64) -> Quota {
    Quota::new(1, std::time::Duration::from_secs(100 * 365 * 86_400)).burst(burst)
}

fn registered(memory: &Memory, quotas: &[Quota]) -> Vec<PolicyId> {
    let policies: Vec<_> = quotas
        .iter()
        .enumerate()
        .map(|(number, quota)| Policy::new(number.to_string(), *quota))
        .collect();
    memory.register(&policies).unwrap()
}

fn allowed(memory: &Memory, charges: &[Charge<'_>]) -> bool {
    let mut out = Decisions::rejected(charges.len());
    let Answer::Done(allowed) = memory.acquire(charges, &mut out) else {
        panic!("memory is not remote")
    };
    assert_eq!(allowed, out.iter().all(|decision| decision.allowed));
    allowed
}

fn remaining(memory: &Memory, policy: PolicyId, key: &[u8]) -> u64 {
    let mut out = [Decision::default()];
    memory.acquire(&[Charge::new(policy, key, 0)], &mut out);
    out[0].remaining
}

fn race(threads: u64, work: impl Fn(u64) -> u64 + Sync) -> u64 {
    let total = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..threads {
            let (total, work) = (&total, &work);
            scope.spawn(move || total.fetch_add(work(number), Relaxed));
        }
    });
    total.into_inner()
}

/// The client's slot counts as free, and other clients take it repeatedly.
#[test]
fn an_idle_client_is_charged_once_while_others_take_its_slot() {
    let memory = Memory::with_capacity(1);
    // The bucket is full again before a client can send a second request.
    let quota = Quota::new(1_000_000_000, std::time::Duration::from_secs(1)).burst(1);
    let policy = registered(&memory, &[quota])[0];
    let done = std::sync::atomic::AtomicBool::new(false);
    let rejected = race(2, |thread| {
        if thread == 0 {
            let rejected = (0..2_000_000_u32)
                .map(|_| u64::from(!allowed(&memory, &[Charge::new(policy, b"idle", 1)])))
                .sum();
            done.store(true, Relaxed);
            return rejected;
        }
        for key in 0_u64.. {
            if done.load(Relaxed) {
                break;
            }
            allowed(&memory, &[Charge::new(policy, &key.to_le_bytes(), 1)]);
        }
        0
    });
    assert_eq!(rejected, 0);
}

#[test]
fn threads_on_one_key_admit_exactly_the_burst() {
    let memory = Memory::default();
    let policy = registered(&memory, &[frozen(100_000)])[0];
    let admitted = race(8, |_| {
        (0..50_000)
            .map(|_| u64::from(allowed(&memory, &[Charge::new(policy, b"key", 1)])))
            .sum()
    });
    assert_eq!(admitted, 100_000);
}

#[test]
fn the_first_requests_of_a_key_are_one_key_s_requests() {
    let memory = Memory::default();
    let policy = registered(&memory, &[frozen(1)])[0];
    let together = Barrier::new(2);
    let admitted = race(2, |_| {
        let first = |key: u64| {
            together.wait();
            u64::from(allowed(
                &memory,
                &[Charge::new(policy, &key.to_le_bytes(), 1)],
            ))
        };
        (0..50_000).map(first).sum()
    });
    assert_eq!(admitted, 50_000);
}

#[test]
fn threads_on_sets_admit_exactly_the_limit_of_the_tightest_policy() {
    let memory = Memory::default();
    let [tight, roomy] = registered(&memory, &[frozen(10_000), frozen(60_000)])[..] else {
        panic!()
    };
    let admitted = race(8, |thread| {
        let own = thread.to_le_bytes();
        let set = [
            Charge::new(tight, b"shared", 1),
            Charge::new(roomy, &own, 1),
        ];
        // Requests to one of the policies alone must not come between the steps of a set.
        let alone = [Charge::new(tight, b"shared", 1)];
        (0..5_000)
            .map(|_| u64::from(allowed(&memory, &set)) + u64::from(allowed(&memory, &alone)))
            .sum()
    });
    assert_eq!(admitted, 10_000);
}

/// Such a request could come between the steps at the last token.
#[test]
fn the_last_token_goes_to_a_set_or_to_a_request_alone_and_not_to_both() {
    const ROUNDS: u64 = 30_000;
    let memory = Memory::default();
    let [tight, roomy] = registered(&memory, &[frozen(1), frozen(ROUNDS)])[..] else {
        panic!()
    };
    let together = Barrier::new(2);
    let admitted = race(2, |thread| {
        let round = |round: u64| {
            let key = round.to_le_bytes();
            let set = [
                Charge::new(tight, &key, 1),
                Charge::new(roomy, b"shared", 1),
            ];
            together.wait();
            // One thread charges only the policy that applies to both.
            let charges = if thread == 0 { &set[..] } else { &set[..1] };
            let mut out = Decisions::rejected(charges.len());
            let answer = memory.acquire(charges, &mut out);
            // A panic here would block the other thread.
            u64::from(matches!(answer, Answer::Done(true)))
        };
        (0..ROUNDS).map(round).sum()
    });
    assert_eq!(admitted, ROUNDS);
}

#[test]
fn sets_whose_keys_cross_neither_lock_up_nor_leak() {
    let memory = Memory::default();
    let [a, b] = registered(&memory, &[frozen(1_000), frozen(1_000)])[..] else {
        panic!()
    };
    let admitted = race(4, |thread| {
        let (x, y): (&[u8], &[u8]) = if thread % 2 == 0 {
            (b"x", b"y")
        } else {
            (b"y", b"x")
        };
        (0..2_000)
            .map(|_| {
                u64::from(allowed(
                    &memory,
                    &[Charge::new(a, x, 1), Charge::new(b, y, 1)],
                ))
            })
            .sum()
    });
    assert_eq!(admitted, 2_000);
}

#[test]
fn a_set_is_charged_to_all_or_to_none() {
    let memory = Memory::default();
    let [wide, narrow] = registered(&memory, &[frozen(5), frozen(2)])[..] else {
        panic!()
    };
    let set = [Charge::new(wide, b"a", 1), Charge::new(narrow, b"b", 1)];
    assert!(allowed(&memory, &set) && allowed(&memory, &set));
    for _ in 0..10 {
        let mut out = Decisions::rejected(2);
        assert!(matches!(
            memory.acquire(&set, &mut out),
            Answer::Done(false)
        ));
        assert!(out[0].allowed && !out[1].allowed);
        assert_eq!(out[0].remaining, 3, "not charged");
    }
}

#[test]
fn a_settlement_corrects_every_charge_of_a_set() {
    let memory = Memory::default();
    let [a, b] = registered(&memory, &[frozen(5), frozen(9)])[..] else {
        panic!()
    };
    let set = [Charge::new(a, b"k", 2), Charge::new(b, b"k", 2)];
    assert!(allowed(&memory, &set));
    assert!(matches!(memory.settle(&set, 1), Answer::Done(true)));
    assert_eq!(
        (remaining(&memory, a, b"k"), remaining(&memory, b, b"k")),
        (2, 6)
    );
    // A refund of a charge is at most its cost.
    assert!(matches!(memory.settle(&set, -100), Answer::Done(true)));
    assert_eq!(
        (remaining(&memory, a, b"k"), remaining(&memory, b, b"k")),
        (4, 8)
    );
}

#[test]
fn a_policy_of_another_memory_is_an_error() {
    let policy = registered(&Memory::default(), &[frozen(1)])[0];
    let answer =
        Memory::default().acquire(&[Charge::new(policy, b"k", 1)], &mut [Decision::default()]);
    assert!(matches!(answer, Answer::Failed(_)));
}

#[test]
fn a_flood_of_new_keys_does_not_free_a_limited_one() {
    let memory = Memory::with_capacity(10_000);
    let policy = registered(&memory, &[frozen(1_000)])[0];
    let hot = Charge::new(policy, b"hot", 1_000);
    assert!(allowed(&memory, &[hot]));
    for key in 0..1_000_000_u64 {
        assert!(allowed(
            &memory,
            &[Charge::new(policy, &key.to_le_bytes(), 1)]
        ));
    }
    assert!(!allowed(&memory, &[Charge::new(policy, b"hot", 1)]));
}

/// The places of keys are random: in one of fifty processes one key is missing.
#[test]
fn as_many_keys_as_the_capacity_are_remembered() {
    let memory = Memory::with_capacity(100_000);
    let policy = registered(&memory, &[frozen(1)])[0];
    for key in 0..100_000_u64 {
        assert!(allowed(
            &memory,
            &[Charge::new(policy, &key.to_le_bytes(), 1)]
        ));
    }
    let forgotten = (0..100_000_u64)
        .filter(|key| remaining(&memory, policy, &key.to_le_bytes()) > 0)
        .count();
    assert!(forgotten <= 1, "{forgotten}");
}

#[test]
fn keys_that_are_full_again_make_room() {
    let memory = Memory::with_capacity(1_000);
    let policy = registered(&memory, &[Quota::per_second(2_000_000_000).burst(1)])[0];
    let held = registered(&memory, &[frozen(1)])[0];
    for key in 0..100_000_u64 {
        assert!(allowed(
            &memory,
            &[Charge::new(policy, &key.to_le_bytes(), 1)]
        ));
    }
    assert!(allowed(&memory, &[Charge::new(held, b"other table", 1)]));
    assert!(!allowed(&memory, &[Charge::new(held, b"other table", 1)]));
}

#[test]
fn concurrent_charges_and_evictions_never_admit_more_than_the_burst_to_a_key_that_stays() {
    // The hot key is the most limited from its first charge on, so the flood must not push it out or reset it.
    let memory = Arc::new(Memory::with_capacity(64));
    let policy = registered(&memory, &[frozen(1_000_000)])[0];
    assert!(allowed(&memory, &[Charge::new(policy, b"hot", 500_000)]));
    let admitted = race(4, |thread| {
        let mut admitted = 0;
        for turn in 0..200_000_u64 {
            if thread % 2 == 0 {
                admitted += 5 * u64::from(allowed(&memory, &[Charge::new(policy, b"hot", 5)]));
            } else {
                let key = (thread << 32 | turn).to_le_bytes();
                allowed(&memory, &[Charge::new(policy, &key, 1)]);
            }
        }
        admitted
    });
    assert_eq!(admitted, 500_000);
}
