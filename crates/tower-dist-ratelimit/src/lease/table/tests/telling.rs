//! State that is reported for a key without calling the backend.

use super::*;

/// Answers a refill for 50 tokens, which was sent one lease time after the start.
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
        panic!("the key is hot");
    };
    id
}

#[test]
fn tokens_taken_during_a_refill_are_not_reported_as_remaining() {
    let set = Set::new();
    let id = asking(&heat(&set, 1, 0));
    set.take(1, 30);
    // The backend may or may not have counted these tokens.
    let decision = Decision::allow(50, 1_000, 900, Duration::ZERO);
    answer(&set, id, &decision, LEASE);
    let remaining = &set.slot(1).unwrap().remaining;
    assert_eq!(remaining.load(Relaxed), 870);
}

#[test]
fn a_request_lowers_the_reported_remaining_by_its_cost_and_a_background_refill_does_not() {
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
fn waits_count_from_the_arrival_of_the_backend_s_answer() {
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
fn a_refund_resets_the_pause_to_the_shortest() {
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
    // The mean interval of 100 requests per lease time.
    let one = LEASE / 100;
    assert_eq!([4, 5, 6].map(pause), [one, 2 * one, 4 * one]);
    set.relieve(1);
    assert_eq!(pause(7), one);
}
