//! Explores all interleavings of threads on one slot, with at most three preemptions each.
//!
//! ```sh
//! RUSTFLAGS="--cfg tower_dist_ratelimit_loom" cargo test -p tower-dist-ratelimit --lib --release lease::loom
//! ```

use ::loom::{model::Builder, sync::Arc, thread};

use super::{purse::Purse, slot::Slot};

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn two_threads_cannot_overspend_a_purse() {
    explore(|| {
        let purse = Arc::new(Purse::new());
        purse.fill(3, 10);
        let other = {
            let purse = Arc::clone(&purse);
            thread::spawn(move || purse.spend(2, 0, || true).is_some())
        };
        let one = purse.spend(2, 0, || true).is_some();
        let other = other.join().unwrap();
        assert!(one ^ other);
        assert_eq!(purse.left(0), 1);
    });
}

#[test]
fn a_concurrent_spend_never_takes_tokens_after_their_own_deadline() {
    explore(|| {
        let purse = Arc::new(Purse::new());
        purse.fill(1, 10);
        let spender = {
            let purse = Arc::clone(&purse);
            // Between the first deadline and the second.
            thread::spawn(move || purse.spend(1, 15, || true).is_some())
        };
        purse.fill(2, 20);
        let spent = spender.join().unwrap();
        assert_eq!(purse.left(19), 2 - u64::from(spent));
    });
}

#[test]
fn a_concurrent_spend_never_applies_an_older_later_deadline_to_a_new_lease() {
    explore(|| {
        let purse = Arc::new(Purse::new());
        purse.fill(1, 20);
        let spender = {
            let purse = Arc::clone(&purse);
            thread::spawn(move || purse.spend(1, 15, || true).is_some())
        };
        purse.fill(2, 10);
        spender.join().unwrap();
        // The spender took the first token or none.
        assert_eq!(purse.left(9), 2);
    });
}

#[test]
fn concurrent_drain_and_spend_count_each_token_once() {
    explore(|| {
        let slot = Arc::new(Slot::new());
        slot.give_to(1);
        slot.fill(3, 10, 0);
        let spender = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.spend(1, 2, 0, 0).is_some())
        };
        let drained = slot.drain(0);
        let spent = 2 * u64::from(spender.join().unwrap());
        assert_eq!(drained + spent, 3);
    });
}

#[test]
fn a_concurrent_spend_never_takes_tokens_of_the_key_that_took_the_slot() {
    explore(|| {
        let slot = Arc::new(Slot::new());
        slot.give_to(1);
        slot.fill(1, 10, 0);
        let spender = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.spend(1, 1, 0, 0).is_some())
        };
        slot.give_to(2);
        slot.fill(5, 10, 0);
        spender.join().unwrap();
        assert_eq!(slot.held(0), 5);
    });
}
