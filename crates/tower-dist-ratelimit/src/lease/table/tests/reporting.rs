//! State that is reported for a key without calling the backend.

use super::*;

#[test]
fn tokens_taken_during_a_refill_are_not_reported_as_remaining() {
    let ways = EntrySet::default();
    let refill = heat(&ways, 1, 0);
    ways.change(1, |entry, state| state.charged_outside(entry, 30));
    // The backend may or may not have counted these tokens.
    let decision = Decision::allow(50, 1_000, 900, Duration::ZERO);
    answered(&ways, refill, &decision, LEASE);
    let remaining = &ways.entry(1).unwrap().remaining;
    assert_eq!(remaining.load(Relaxed), 870);
}

#[test]
fn a_request_lowers_the_reported_remaining_by_its_cost_and_a_background_refill_does_not() {
    let ways = EntrySet::default();
    plan(&ways, 1, 0);
    let entry = ways.entry(1).unwrap();
    entry.remaining.store(100, Relaxed);
    assert_eq!(plan(&ways, 1, 1), Plan::Exact);
    assert_eq!(entry.remaining.load(Relaxed), 99);
    entry.seen.fetch_add(100, Relaxed);
    let waiting = refill(&plan(&ways, 1, LEASE));
    assert_eq!(entry.remaining.load(Relaxed), 98);
    ways.change(1, |entry, state| state.ended(entry, waiting, 0));
    entry.seen.fetch_add(100, Relaxed);
    let ahead = Claim {
        ahead: true,
        ..claim(1, 1, 2 * LEASE)
    };
    let charge = Charge::new(PolicyId::new(0), b"k", 1);
    refill(&ways.plan(ahead, &charge, LEASE));
    assert_eq!(entry.remaining.load(Relaxed), 98);
}

#[test]
fn waits_count_from_the_arrival_of_the_backend_s_answer() {
    let ways = EntrySet::default();
    let refill = heat(&ways, 1, 0);
    let [wait, full] = [5, 7].map(Duration::from_nanos);
    let decision = Decision::reject(1_000, 0, Some(wait), full);
    answered(&ways, refill, &decision, LEASE + 10);
    let entry = ways.entry(1).unwrap();
    assert_eq!(ways.lock()[0].due, LEASE + 15);
    assert_eq!(entry.full_at.load(Relaxed), LEASE + 17);
}

#[test]
fn a_refund_resets_the_pause_to_the_shortest() {
    let ways = EntrySet::default();
    plan(&ways, 1, 0);
    let entry = ways.entry(1).unwrap();
    let pause = |lease_times: u64| {
        let now = lease_times * LEASE;
        entry.seen.fetch_add(100, Relaxed);
        let refill = refill(&plan(&ways, 1, now));
        let few = Decision::allow(refill.cost, 1_000, 0, Duration::ZERO);
        answered(&ways, refill, &few, now) - now
    };
    entry.seen.fetch_add(300, Relaxed);
    let first = refill(&plan(&ways, 1, 3 * LEASE));
    ways.change(1, |entry, state| state.ended(entry, first, 0));
    // The mean interval of 100 requests per lease time.
    let one = LEASE / 100;
    assert_eq!([4, 5, 6].map(pause), [one, 2 * one, 4 * one]);
    ways.relieve(1);
    assert_eq!(pause(7), one);
}

#[test]
fn a_rejection_reports_fewer_tokens_than_its_cost_and_a_reset_no_earlier_than_its_wait() {
    let entry = LeaseEntry::default();
    // One request is never paid for from two leases.
    entry.fill(3, 100, 0);
    entry.fill(3, 200, 0);
    let rejected = KeyState::default().reject(&entry, claim(1, 5, 0), 40);
    let wait = Duration::from_nanos(40);
    assert_eq!((rejected.remaining, rejected.retry_after), (4, Some(wait)));
    assert_eq!(rejected.reset_after, wait);
}
