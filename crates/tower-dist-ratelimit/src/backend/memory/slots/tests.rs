use std::ops::Range;

use siphasher::sip::SipHasher13;

use super::*;
use crate::{
    Quota,
    algorithm::{Bucket, Take},
    backend::memory::{atomic_table::AtomicTable, store::Store},
    key::KeyBytes,
};

const KEYS: usize = 10_000;

/// Charges the keys one token each, a second apart. Returns the number of keys that still have a slot.
fn found_after(slots: &AtomicTable<Bucket<false>>, keys: Range<usize>) -> usize {
    let hasher = SipHasher13::new_with_keys(0, 0);
    let take = Take::own(1);
    let keys = keys.map(|key| Fingerprint::of(KeyBytes::Part(&key.to_le_bytes()), &hasher));
    let keys: Vec<Fingerprint> = keys.collect();
    for (&key, second) in keys.iter().zip(0..) {
        let decision = slots.charge(key, second * 1_000_000_000, &take);
        assert!(decision.allowed);
    }
    keys.iter()
        .filter(|&&key| slots.slots.find(key).is_some())
        .count()
}

fn slots() -> AtomicTable<Bucket<false>> {
    let bucket = Bucket::new(Quota::per_second(1_000), None).expect("valid");
    AtomicTable::new(bucket, KEYS).expect("enough memory")
}

/// Otherwise a key with rare requests would get a new slot each time, under locks.
#[test]
fn keys_that_are_no_longer_limited_keep_their_slots_while_there_are_others() {
    let found = found_after(&slots(), 0..KEYS);
    assert_eq!(found, KEYS);
}

#[test]
fn keys_that_are_no_longer_limited_make_room_for_new_keys() {
    let slots = slots();
    let all = slots.slots.lines.len() * WAYS;
    let found = found_after(&slots, 0..3 * KEYS);
    assert!(found > all * 9 / 10 && found <= all, "{found} of {all}");
}
