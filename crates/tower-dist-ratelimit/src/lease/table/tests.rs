use std::time::Duration;

use super::*;
use crate::backend::PolicyId;

const LEASE: u64 = 1_000_000;

fn plan(set: &Set, tag: u64, now: u64) -> Plan {
    let ask = Ask {
        tag,
        cost: 1,
        burst: 1_000,
        now,
        ahead: false,
    };
    set.plan(ask, &Charge::new(PolicyId::new(0), b"k", 1), LEASE)
}

/// Records a hundred requests in one lease time, and plans the next request.
fn heat(set: &Set, tag: u64, now: u64) -> Plan {
    plan(set, tag, now);
    let slot = set.slot(tag).expect("the key has a slot");
    slot.seen.fetch_add(100, Relaxed);
    plan(set, tag, now + LEASE)
}

fn is_there(set: &Set, tag: u64) -> bool {
    set.slot(tag).is_some()
}

#[test]
fn a_hot_key_keeps_its_slot_until_it_cools() {
    let set = Set::new();
    for tag in 1..=4 {
        assert!(matches!(heat(&set, tag, 0), Plan::Ask { .. }));
    }
    assert_eq!(plan(&set, 5, LEASE), Plan::Exact);
    assert!((1..=4).all(|tag| is_there(&set, tag)) && !is_there(&set, 5));
    assert_eq!(plan(&set, 5, 20 * LEASE), Plan::Exact);
    assert!(is_there(&set, 5));
}

#[test]
fn an_answer_to_a_refill_from_before_an_eviction_is_not_booked() {
    let set = Set::new();
    let Plan::Ask { id, .. } = heat(&set, 1, 0) else {
        panic!("the key is hot");
    };
    for tag in 2..=5 {
        plan(&set, tag, 20 * LEASE);
        set.slot(tag).unwrap().seen.fetch_add(1, Relaxed);
    }
    assert!(!is_there(&set, 1));
    let Plan::Ask { id: next, .. } = heat(&set, 1, 40 * LEASE) else {
        panic!("the key is hot again");
    };
    let now = 41 * LEASE + 1;
    let answer = |id| {
        let decision = Decision::allow(50, 1_000, 900, Duration::ZERO);
        let answered = Answered {
            tag: 1,
            id,
            asked: 41 * LEASE,
            now,
            cost: 1,
            want: 50,
        };
        set.answered(answered, &decision, LEASE);
        set.slot(1).unwrap().held(now)
    };
    assert_eq!((answer(id), answer(next)), (0, 49));
}

#[test]
fn a_key_that_evicts_another_gets_none_of_its_tokens() {
    let set = Set::new();
    for tag in 1..=4 {
        plan(&set, tag, 0);
        set.slot(tag).unwrap().fill(7, LEASE, 0);
    }
    plan(&set, 5, 1);
    assert_eq!(set.slot(5).unwrap().held(1), 0);
}

#[test]
fn a_new_lease_replaces_an_empty_purse_and_keeps_unused_tokens() {
    let set = Set::new();
    plan(&set, 1, 0);
    let slot = set.slot(1).unwrap();
    slot.fill(5, 200, 0);
    slot.fill(7, 100, 0);
    // Each request empties one purse.
    assert!(slot.spend(1, 7, 0, 0).is_some() && slot.spend(1, 5, 0, 0).is_some());
    slot.fill(3, 150, 0);
    slot.fill(4, 300, 0);
    assert_eq!(slot.held(0), 7);
}

#[test]
fn tokens_that_expire_before_the_refill_arrives_do_not_count_as_held() {
    let extra = |dying| {
        let set = Set::new();
        plan(&set, 1, 0);
        set.slot(1).unwrap().fill(dying, LEASE + LEASE / 8, 0);
        let Plan::Ask { extra, .. } = heat(&set, 1, 0) else {
            panic!("the key is hot");
        };
        extra
    };
    assert_eq!(extra(1_000), extra(0));
}

mod telling;
