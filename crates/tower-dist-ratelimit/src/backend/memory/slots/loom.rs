//! Every way in which threads can meet at one slot, up to two switches of a thread that could go on.
//!
//! ```sh
//! RUSTFLAGS="--cfg tower_dist_ratelimit_loom" cargo test -p tower-dist-ratelimit --lib --release slots::loom
//! ```

use ::loom::{model::Builder, sync::Arc, thread};
use siphasher::sip::SipHasher13;

use super::*;
use crate::{
    Quota,
    algorithm::{Bucket, Take},
    backend::memory::{atomic_table::AtomicTable, store::Store},
    key::KeyBytes,
};

const YEARS: std::time::Duration = std::time::Duration::from_secs(3_155_760_000);

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// One slot, and nothing that comes back.
fn slots(burst: u64) -> Arc<AtomicTable<Bucket<false>>> {
    let bucket = Bucket::new(Quota::new(1, YEARS).burst(burst), None).unwrap();
    Arc::new(AtomicTable::new(bucket, 1).unwrap())
}

fn key(name: &[u8]) -> Fingerprint {
    Fingerprint::of(KeyBytes::Part(name), &SipHasher13::new_with_keys(0, 0))
}

fn charge(slots: &AtomicTable<Bucket<false>>, key: Fingerprint, cost: u64) -> u64 {
    slots.charge(key, 0, &Take::own(cost)).granted
}

fn left(slots: &AtomicTable<Bucket<false>>, key: Fingerprint) -> u64 {
    slots.check(key, 0, &Take::own(0)).remaining
}

#[test]
fn first_requests_that_meet_are_one_key_s_requests() {
    explore(|| {
        let slots = slots(1);
        let other = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || charge(&slots, key(b"a"), 1))
        };
        let granted = charge(&slots, key(b"a"), 1) + other.join().unwrap();
        assert_eq!((granted, left(&slots, key(b"a"))), (1, 0));
    });
}

#[test]
fn charges_that_meet_all_count() {
    explore(|| {
        let slots = slots(4);
        charge(&slots, key(b"a"), 1);
        let other = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || charge(&slots, key(b"a"), 2))
        };
        let granted = charge(&slots, key(b"a"), 2) + other.join().unwrap();
        assert_eq!((granted, left(&slots, key(b"a"))), (2, 1));
    });
}

#[test]
fn a_refund_that_meets_a_charge_is_not_lost() {
    explore(|| {
        let slots = slots(4);
        charge(&slots, key(b"a"), 2);
        let other = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || slots.settle(key(b"a"), 0, &Take::own(0), -1))
        };
        let granted = charge(&slots, key(b"a"), 1);
        other.join().unwrap();
        assert_eq!((granted, left(&slots, key(b"a"))), (1, 2));
    });
}

/// The one slot is the less limited key's, and another wants it while its owner is charged.
#[test]
fn a_slot_that_changes_its_key_gives_no_key_the_other_key_s_tokens() {
    explore(|| {
        let slots = slots(8);
        charge(&slots, key(b"a"), 1);
        let other = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || charge(&slots, key(b"b"), 5))
        };
        let granted = charge(&slots, key(b"a"), 2);
        assert_eq!((granted, other.join().unwrap()), (2, 5));
        // The final owner of the slot has its own charges, and the last charge counts. The other key starts again.
        let both = (left(&slots, key(b"a")), left(&slots, key(b"b")));
        assert!([(6, 8), (8, 3)].contains(&both), "{both:?}");
    });
}

/// The new owner's state is by chance the very number that the old one's was, so comparing alone does not tell.
#[test]
fn a_charge_that_meets_a_new_owner_with_the_same_state_is_not_the_new_owner_s() {
    explore(|| {
        let slots = slots(8);
        charge(&slots, key(b"a"), 1);
        let other = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || charge(&slots, key(b"b"), 1))
        };
        let granted = charge(&slots, key(b"a"), 2);
        assert_eq!((granted, other.join().unwrap()), (2, 1));
        let both = (left(&slots, key(b"a")), left(&slots, key(b"b")));
        assert!([(6, 8), (8, 7)].contains(&both), "{both:?}");
    });
}

/// A charge is found, its slot given back, and taken again with by chance the very number that the charge has left
/// there: that is the new owner's own.
#[test]
fn a_charge_that_is_found_and_forgotten_takes_nothing_of_the_new_owner_s_back() {
    let find = |places: [usize; 3]| {
        let mut keys = (0_u32..).map(|number| key(&number.to_le_bytes()));
        keys.find(|key| CHOICES.map(|choice| key.place(choice, 2)) == places)
            .unwrap()
    };
    // A place for the one key that the other key cannot take.
    let (a, b) = (find([0, 1, 1]), find([0, 0, 0]));
    explore(move || {
        let bucket = Bucket::new(Quota::new(1, YEARS).burst(8), None).unwrap();
        let slots = Arc::new(AtomicTable::new(bucket, 2).unwrap());
        charge(&slots, a, 1);
        let other = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || charge(&slots, b, 3))
        };
        let granted = charge(&slots, a, 2);
        assert_eq!((granted, other.join().unwrap()), (2, 3));
        assert_eq!(left(&slots, b), 5);
    });
}
