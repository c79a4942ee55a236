//! What is told of a key without asking the store.

use super::*;

/// The answer to who wanted 50 and asked a lease time after the beginning.
fn answer(set: &Set, id: u64, decision: &Decision, now: u64) -> u64 {
    let answered = Answered {
        tag: 1,
        id,
        asked: LEASE,
        now,
        cost: 1,
        want: 50,
    };
    set.answered(answered, decision, LEASE)
}

fn asking(plan: &Plan) -> u64 {
    let Plan::Ask { id, .. } = *plan else {
        panic!("it is hot");
    };
    id
}

#[test]
fn what_others_take_while_somebody_asks_is_not_told_to_be_left() {
    let set = Set::new();
    let id = asking(&heat(&set, 1, 0));
    set.take(1, 30);
    // The store may have counted that, or not.
    let decision = Decision::allow(50, 1_000, 900, Duration::ZERO);
    answer(&set, id, &decision, LEASE);
    let remaining = &set.slot(1).unwrap().remaining;
    assert_eq!(remaining.load(Relaxed), 870);
}

#[test]
fn less_is_told_to_be_left_by_what_a_request_costs_and_not_by_what_is_asked_for_ahead() {
    let set = Set::new();
    plan(&set, 1, 0);
    let slot = set.slot(1).unwrap();
    slot.remaining.store(100, Relaxed);
    assert_eq!(plan(&set, 1, 1), Plan::Exact);
    assert_eq!(slot.remaining.load(Relaxed), 99);
    slot.seen.fetch_add(100, Relaxed);
    let id = asking(&plan(&set, 1, LEASE));
    assert_eq!(slot.remaining.load(Relaxed), 98);
    set.given_up(1, id, 0);
    slot.seen.fetch_add(100, Relaxed);
    let ahead = Ask {
        tag: 1,
        cost: 1,
        burst: 1_000,
        now: 2 * LEASE,
        ahead: true,
    };
    let charge = Charge::new(PolicyId::new(0), b"k", 1);
    asking(&set.plan(ahead, &charge, LEASE));
    assert_eq!(slot.remaining.load(Relaxed), 98);
}

#[test]
fn waits_count_from_when_the_store_s_answer_was_here() {
    let set = Set::new();
    let id = asking(&heat(&set, 1, 0));
    let [wait, full] = [5, 7].map(Duration::from_nanos);
    let decision = Decision::reject(1_000, 0, Some(wait), full);
    answer(&set, id, &decision, LEASE + 10);
    let slot = set.slot(1).unwrap();
    assert_eq!(slot.due.load(Relaxed), LEASE + 15);
    assert_eq!(slot.full_at.load(Relaxed), LEASE + 17);
}

#[test]
fn after_something_was_put_back_the_first_pause_is_a_short_one() {
    let set = Set::new();
    plan(&set, 1, 0);
    let slot = set.slot(1).unwrap();
    let pause = |lease_times: u64| {
        let now = lease_times * LEASE;
        slot.seen.fetch_add(100, Relaxed);
        let id = asking(&plan(&set, 1, now));
        let few = Decision::allow(10, 1_000, 0, Duration::ZERO);
        let answered = Answered {
            tag: 1,
            id,
            asked: now,
            now,
            cost: 10,
            want: 50,
        };
        set.answered(answered, &few, LEASE) - now
    };
    slot.seen.fetch_add(300, Relaxed);
    plan(&set, 1, 3 * LEASE);
    set.given_up(1, 1, 0);
    // As long as so many of the 100 requests in a lease time take.
    let one = LEASE / 100;
    assert_eq!([4, 5, 6].map(pause), [one, 2 * one, 4 * one]);
    set.relieve(1);
    assert_eq!(pause(7), one);
}
