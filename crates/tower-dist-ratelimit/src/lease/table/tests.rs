use std::time::Duration;

use super::{super::entry::Refill, *};
use crate::{Decision, backend::PolicyId};

const LEASE: u64 = 1_000_000;

fn claim(tag: u64, cost: u64, now: u64) -> Claim {
    Claim {
        tag,
        cost,
        burst: 1_000,
        now,
        ahead: false,
    }
}

fn plan(ways: &EntrySet, tag: u64, now: u64) -> Plan {
    let charge = Charge::new(PolicyId::new(0), b"k", 1);
    ways.plan(claim(tag, 1, now), &charge, LEASE)
}

/// Records a hundred requests in one lease time, and plans the next request.
fn heat(ways: &EntrySet, tag: u64, now: u64) -> Refill {
    plan(ways, tag, now);
    let entry = ways.entry(tag).expect("the key has an entry");
    entry.seen.fetch_add(100, Relaxed);
    refill(&plan(ways, tag, now + LEASE))
}

fn answered(ways: &EntrySet, refill: Refill, decision: &Decision, now: u64) -> u64 {
    let answered = |entry: &LeaseEntry, state: &mut KeyState| {
        state.answered(entry, refill, decision, now, LEASE)
    };
    ways.change(refill.tag, answered)
        .expect("the key has an entry")
}

fn refill(plan: &Plan) -> Refill {
    let Plan::Refill(refill) = *plan else {
        panic!("the key is hot");
    };
    refill
}

fn is_there(ways: &EntrySet, tag: u64) -> bool {
    ways.entry(tag).is_some()
}

#[test]
fn a_hot_key_keeps_its_entry_until_it_cools() {
    let ways = EntrySet::default();
    for tag in 1..=4 {
        heat(&ways, tag, 0);
    }
    assert_eq!(plan(&ways, 5, LEASE), Plan::Exact);
    assert!((1..=4).all(|tag| is_there(&ways, tag)) && !is_there(&ways, 5));
    assert_eq!(plan(&ways, 5, 20 * LEASE), Plan::Exact);
    assert!(is_there(&ways, 5));
}

#[test]
fn an_answer_to_a_refill_from_before_an_eviction_is_not_booked() {
    let ways = EntrySet::default();
    let late = heat(&ways, 1, 0);
    for tag in 2..=5 {
        plan(&ways, tag, 20 * LEASE);
        ways.entry(tag).unwrap().seen.fetch_add(1, Relaxed);
    }
    assert!(!is_there(&ways, 1));
    let next = heat(&ways, 1, 40 * LEASE);
    let now = 41 * LEASE + 1;
    let answer = |refill: Refill| {
        let granted = refill.cost + 49;
        let decision = Decision::allow(granted, 1_000, 900, Duration::ZERO);
        answered(&ways, refill, &decision, now);
        ways.entry(1).unwrap().held(now)
    };
    assert_eq!((answer(late), answer(next)), (0, 49));
}

#[test]
fn a_key_that_evicts_another_gets_none_of_its_tokens() {
    let ways = EntrySet::default();
    for tag in 1..=4 {
        plan(&ways, tag, 0);
        ways.entry(tag).unwrap().fill(7, LEASE, 0);
    }
    plan(&ways, 5, 1);
    assert_eq!(ways.entry(5).unwrap().held(1), 0);
}

#[test]
fn a_new_lease_replaces_an_empty_one_and_keeps_unused_tokens() {
    let ways = EntrySet::default();
    plan(&ways, 1, 0);
    let entry = ways.entry(1).unwrap();
    entry.fill(5, 200, 0);
    entry.fill(7, 100, 0);
    // Each request empties one lease.
    assert!(entry.spend(claim(1, 7, 0)) && entry.spend(claim(1, 5, 0)));
    entry.fill(3, 150, 0);
    entry.fill(4, 300, 0);
    assert_eq!(entry.held(0), 7);
}

#[test]
fn tokens_that_expire_before_the_refill_arrives_do_not_count_as_held() {
    let extra = |dying| {
        let ways = EntrySet::default();
        plan(&ways, 1, 0);
        ways.entry(1).unwrap().fill(dying, LEASE + LEASE / 8, 0);
        heat(&ways, 1, 0).up_to
    };
    assert_eq!(extra(1_000), extra(0));
}

mod reporting;
