//! Every way in which requests can meet at an open circuit, and at one that is about to open.
//!
//! ```sh
//! RUSTFLAGS="--cfg tower_dist_ratelimit_loom" cargo test -p tower-dist-ratelimit --lib --release breaker::loom
//! ```

use ::loom::{sync::Arc, thread};

use super::*;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn failed(times: usize) -> Arc<Breaker> {
    let breaker = Breaker::new(ms(50), 1);
    for _ in 0..times {
        breaker.failed(Leave::Closed, ms(0));
    }
    Arc::new(breaker)
}

/// What two threads get that do the same.
fn both<T: Send + 'static>(breaker: &Arc<Breaker>, act: fn(&Breaker) -> T) -> [T; 2] {
    let other = {
        let breaker = Arc::clone(breaker);
        thread::spawn(move || act(&breaker))
    };
    let own = act(breaker);
    [own, other.join().unwrap()]
}

#[test]
fn one_of_two_is_the_probe() {
    ::loom::model(|| {
        let breaker = failed(5);
        let leaves = both(&breaker, |breaker| breaker.leave(|| ms(100)).is_ok());
        assert_ne!(leaves[0], leaves[1]);
    });
}

#[test]
fn two_that_fail_open_it_once() {
    ::loom::model(|| {
        let breaker = failed(4);
        let changes = both(&breaker, |breaker| breaker.failed(Leave::Closed, ms(0)));
        let opened = |change: &&Option<Change>| **change == Some(Change::Opened);
        assert_eq!(changes.iter().filter(opened).count(), 1);
    });
}

#[test]
fn no_failure_and_no_answer_is_lost() {
    ::loom::model(|| {
        let breaker = failed(3);
        both(&breaker, |breaker| breaker.failed(Leave::Closed, ms(0)));
        assert!(breaker.shut_for(|| ms(0)).is_some(), "the fifth");
    });
}

#[test]
fn a_probe_s_answer_closes_it_once_whatever_comes_late() {
    ::loom::model(|| {
        let breaker = failed(5);
        let probe = breaker.leave(|| ms(100)).unwrap();
        let late = {
            let breaker = Arc::clone(&breaker);
            thread::spawn(move || breaker.failed(Leave::Closed, ms(100)))
        };
        assert_eq!(
            breaker.answered(probe, ms(100), false),
            Some(Change::Closed)
        );
        assert_eq!(late.join().unwrap(), None, "one failure is none");
        assert!(breaker.shut_for(|| ms(100)).is_none());
    });
}
