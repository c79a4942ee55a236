//! Models of the shared words: every interleaving, and every value that a relaxed load may see.
//!
//! ```console
//! $ RUSTFLAGS="--cfg tower_attempt_loom" cargo test -p tower-attempt --no-default-features --lib budget::models
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use loom::thread;

use super::AtomicU64;
use super::bucket::BudgetBucket;

/// A token in the bucket's units.
const TOKEN: u64 = 1_000_000;

/// Runs both closures concurrently.
fn both<A: 'static, B>(a: impl FnOnce() -> A + 'static, b: impl FnOnce() -> B) -> (A, B) {
    let a = thread::spawn(a);
    let b = b();
    (a.join().expect("the other thread ends well"), b)
}

fn take(bucket: &BudgetBucket) -> bool {
    bucket.withdraw(|| 0)
}

/// Takes the remaining tokens. Returns their number.
fn left(bucket: &BudgetBucket) -> u32 {
    (0..100)
        .find(|_| !take(bucket))
        .expect("there is an end to it")
}

#[test]
fn the_last_token_is_taken_once() {
    loom::model(|| {
        let bucket = Arc::new(BudgetBucket::new(0.0, 1, 1));
        let threads = [(); 2].map(|()| {
            let bucket = Arc::clone(&bucket);
            thread::spawn(move || take(&bucket))
        });
        let own = take(&bucket);
        let others = threads.map(|thread| thread.join().unwrap());
        let taken = others.into_iter().chain([own]).filter(|taken| *taken);
        assert_eq!(taken.count(), 1);
        assert_eq!(left(&bucket), 0);
    });
}

#[test]
fn deposits_and_withdrawals_neither_lose_nor_make_tokens() {
    loom::model(|| {
        let bucket = Arc::new(BudgetBucket::new(1.0, 3, 1));
        let other = Arc::clone(&bucket);
        let ((), taken) = both(
            move || {
                other.deposit(|| 0);
                other.deposit(|| 0);
            },
            || u32::from(take(&bucket)) + u32::from(take(&bucket)),
        );
        assert!(taken >= 1, "the first token was there all the time");
        assert_eq!(taken + left(&bucket), 3);
    });
}

#[test]
fn a_refund_returns_one_token_under_concurrency() {
    loom::model(|| {
        let bucket = Arc::new(BudgetBucket::new(0.5, 2, 2));
        let other = Arc::clone(&bucket);
        let (spent, ()) = both(
            move || u32::from(take(&other)),
            || {
                if take(&bucket) {
                    bucket.refund();
                }
            },
        );
        assert_eq!(spent, 1, "two tokens, two that want one");
        assert_eq!(spent + left(&bucket), 2);
    });
}

#[test]
fn refunds_and_deposits_never_exceed_the_burst() {
    loom::model(|| {
        let bucket = Arc::new(BudgetBucket::new(1.0, 2, 2));
        assert!(take(&bucket));
        let other = Arc::clone(&bucket);
        both(move || other.deposit(|| 0), || bucket.refund());
        assert_eq!(left(&bucket), 2);
    });
}

/// The clock advances by one token while two threads want that token.
#[test]
fn time_returns_each_token_once() {
    loom::model(|| {
        let bucket = Arc::new(BudgetBucket::new(1.0, 1, 0));
        let clock = Arc::new(AtomicU64::new(0));
        let (other, others_clock) = (Arc::clone(&bucket), Arc::clone(&clock));
        let (theirs, own) = both(
            move || {
                others_clock.fetch_add(TOKEN, Relaxed);
                other.withdraw(|| others_clock.load(Relaxed))
            },
            || {
                bucket.deposit(|| clock.load(Relaxed));
                bucket.withdraw(|| clock.load(Relaxed))
            },
        );
        // The deposit and the clock give one token each, but a token that meets a full bucket is lost.
        assert!(theirs || own);
        let at_the_end = bucket.withdraw(|| TOKEN);
        assert!(!(theirs && own && at_the_end));
    });
}

#[test]
fn a_throttle_counts_every_failure_and_every_success() {
    loom::model(|| {
        let throttle = Arc::new(BudgetBucket::new(0.1, 10, 10));
        (0..5).for_each(|_| throttle.record_failure());
        let other = Arc::clone(&throttle);
        both(
            move || {
                other.record_failure();
                other.deposit(|| 0);
            },
            || {
                (0..2).for_each(|_| throttle.deposit(|| 0));
                throttle.record_failure();
            },
        );
        // The count is 3.3. After 17 successes it is half of 10; after one more it is above half.
        (0..17).for_each(|_| throttle.deposit(|| 0));
        assert!(!throttle.is_above_half());
        throttle.deposit(|| 0);
        assert!(throttle.is_above_half());
    });
}

/// A thread reads the clock and then stalls, while the bucket is emptied and refilled. The stalled thread must not take
/// a token that time has already given to another thread.
#[test]
fn a_stale_reading_of_the_clock_gives_no_second_token() {
    loom::model(|| {
        let bucket = Arc::new(BudgetBucket::new(0.1, 1, 1));
        let clock = Arc::new(AtomicU64::new(0));
        let (other, others_clock) = (Arc::clone(&bucket), Arc::clone(&clock));
        let (stalled, own) = both(
            move || other.withdraw(|| others_clock.load(Relaxed)),
            || {
                let first = take(&bucket);
                clock.store(TOKEN, Relaxed);
                bucket.deposit(|| TOKEN);
                [first, bucket.withdraw(|| TOKEN)]
            },
        );
        let taken = own.into_iter().chain([stalled]).filter(|taken| *taken);
        assert!(
            taken.count() <= 2,
            "one at first, one by time, a tenth by deposit"
        );
    });
}
