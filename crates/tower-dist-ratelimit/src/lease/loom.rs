//! Every way in which threads can meet at one slot, up to three switches of a thread that could go on.
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
fn two_spend_what_there_is_and_no_more() {
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
fn what_is_filled_again_meanwhile_is_spent_before_its_own_deadline_only() {
    explore(|| {
        let purse = Arc::new(Purse::new());
        purse.fill(1, 10);
        let spender = {
            let purse = Arc::clone(&purse);
            // After the first deadline, and before the second.
            thread::spawn(move || purse.spend(1, 15, || true).is_some())
        };
        purse.fill(2, 20);
        let spent = spender.join().unwrap();
        assert_eq!(purse.left(19), 2 - u64::from(spent));
    });
}

#[test]
fn a_lease_that_ends_sooner_is_not_spent_by_the_deadline_before() {
    explore(|| {
        let purse = Arc::new(Purse::new());
        purse.fill(1, 20);
        let spender = {
            let purse = Arc::clone(&purse);
            thread::spawn(move || purse.spend(1, 15, || true).is_some())
        };
        purse.fill(2, 10);
        spender.join().unwrap();
        // It took the first one, or none.
        assert_eq!(purse.left(9), 2);
    });
}

#[test]
fn what_is_drained_is_what_nobody_spends() {
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
fn whose_slot_has_become_another_s_spends_nothing_of_that() {
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
