//! Explores all interleavings of threads on one entry, with at most three preemptions each.
//!
//! ```sh
//! RUSTFLAGS="--cfg tower_dist_ratelimit_loom" cargo test -p tower-dist-ratelimit --lib --release lease::loom
//! ```

use ::loom::{model::Builder, sync::Arc, thread};

use super::{demand::Claim, entry::LeaseEntry, prepaid::Prepaid};

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A request of the key with tag 1.
fn claim(cost: u64) -> Claim {
    Claim {
        tag: 1,
        cost,
        burst: 10,
        now: 0,
        ahead: false,
    }
}

#[test]
fn two_threads_cannot_overspend_prepaid_tokens() {
    explore(|| {
        let prepaid = Arc::new(Prepaid::default());
        prepaid.fill(3, 10);
        let other = {
            let prepaid = Arc::clone(&prepaid);
            thread::spawn(move || prepaid.spend(2, 0, || true))
        };
        let one = prepaid.spend(2, 0, || true);
        let other = other.join().unwrap();
        assert!(one ^ other);
        assert_eq!(prepaid.tokens(0), 1);
    });
}

#[test]
fn a_concurrent_spend_never_takes_tokens_after_their_own_deadline() {
    explore(|| {
        let prepaid = Arc::new(Prepaid::default());
        prepaid.fill(1, 10);
        let spender = {
            let prepaid = Arc::clone(&prepaid);
            // Between the first deadline and the second.
            thread::spawn(move || prepaid.spend(1, 15, || true))
        };
        prepaid.fill(2, 20);
        let spent = spender.join().unwrap();
        assert_eq!(prepaid.tokens(19), 2 - u64::from(spent));
    });
}

#[test]
fn a_concurrent_spend_never_applies_an_older_later_deadline_to_a_new_lease() {
    explore(|| {
        let prepaid = Arc::new(Prepaid::default());
        prepaid.fill(1, 20);
        let spender = {
            let prepaid = Arc::clone(&prepaid);
            thread::spawn(move || prepaid.spend(1, 15, || true))
        };
        prepaid.fill(2, 10);
        spender.join().unwrap();
        // The spender took the first token or none.
        assert_eq!(prepaid.tokens(9), 2);
    });
}

#[test]
fn concurrent_drain_and_spend_count_each_token_once() {
    explore(|| {
        let entry = Arc::new(LeaseEntry::default());
        entry.give_to(1);
        entry.fill(3, 10, 0);
        let spender = {
            let entry = Arc::clone(&entry);
            thread::spawn(move || entry.spend(claim(2)))
        };
        let drained = entry.drain(0);
        let spent = 2 * u64::from(spender.join().unwrap());
        assert_eq!(drained + spent, 3);
    });
}

#[test]
fn a_concurrent_spend_never_takes_tokens_of_the_key_that_took_the_entry() {
    explore(|| {
        let entry = Arc::new(LeaseEntry::default());
        entry.give_to(1);
        entry.fill(1, 10, 0);
        let spender = {
            let entry = Arc::clone(&entry);
            thread::spawn(move || entry.spend(claim(1)))
        };
        entry.give_to(2);
        entry.fill(5, 10, 0);
        spender.join().unwrap();
        assert_eq!(entry.held(0), 5);
    });
}
