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

/// Asks about a key a hundred times, up to this moment.
fn heat(set: &Set, tag: u64, now: u64) -> Plan {
    plan(set, tag, now);
    let slot = set.slot(tag).expect("it has been asked about");
    slot.seen.fetch_add(100, Relaxed);
    plan(set, tag, now + LEASE)
}

fn is_there(set: &Set, tag: u64) -> bool {
    set.slot(tag).is_some()
}

#[test]
fn a_hot_key_keeps_its_place_from_others_until_it_has_cooled() {
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
fn an_answer_to_who_asked_before_a_key_was_forgotten_is_not_taken_for_the_next_one_s() {
    let set = Set::new();
    let Plan::Ask { id, .. } = heat(&set, 1, 0) else {
        panic!("it is hot");
    };
    for tag in 2..=5 {
        plan(&set, tag, 20 * LEASE);
        set.slot(tag).unwrap().seen.fetch_add(1, Relaxed);
    }
    assert!(!is_there(&set, 1));
    let Plan::Ask { id: next, .. } = heat(&set, 1, 40 * LEASE) else {
        panic!("it is hot again");
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
fn who_takes_the_place_of_another_has_none_of_its_tokens() {
    let set = Set::new();
    for tag in 1..=4 {
        plan(&set, tag, 0);
        set.slot(tag).unwrap().fill(7, LEASE, 0);
    }
    plan(&set, 5, 1);
    assert_eq!(set.slot(5).unwrap().held(1), 0);
}

#[test]
fn a_lease_takes_the_place_of_what_is_used_up_and_not_of_what_is_left() {
    let set = Set::new();
    plan(&set, 1, 0);
    let slot = set.slot(1).unwrap();
    slot.fill(5, 200, 0);
    slot.fill(7, 100, 0);
    // All that was in the one that would have died last.
    assert!(slot.spend(1, 7, 0, 0).is_some() && slot.spend(1, 5, 0, 0).is_some());
    slot.fill(3, 150, 0);
    slot.fill(4, 300, 0);
    assert_eq!(slot.held(0), 7);
}

#[test]
fn what_dies_before_an_answer_can_be_here_is_asked_for_again() {
    let extra = |dying| {
        let set = Set::new();
        plan(&set, 1, 0);
        set.slot(1).unwrap().fill(dying, LEASE + LEASE / 8, 0);
        let Plan::Ask { extra, .. } = heat(&set, 1, 0) else {
            panic!("it is hot");
        };
        extra
    };
    assert_eq!(extra(1_000), extra(0));
}

mod telling;
