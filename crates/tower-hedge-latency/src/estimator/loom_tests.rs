//! `RUSTFLAGS="--cfg tower_hedge_latency_loom" cargo test --release -p tower-hedge-latency --lib loom`

use loom::sync::Arc;
use loom::thread;

use super::*;

/// A window is full after one sample and one microsecond, and each sample is a reason to refresh.
const EAGER: QuantileTarget = QuantileTarget {
    above: 0,
    window: REFRESH_MICROS,
    samples: 1,
};

/// If two threads rotated concurrently, the second would clear the window that the first has just closed.
#[test]
fn a_window_is_closed_once_and_nothing_is_lost() {
    loom::model(|| {
        let estimator = Arc::new(Estimator::default());
        let record = |estimator: &Estimator| {
            estimator.record(Observation::Ended(1), 1, || REFRESH_MICROS, &EAGER)
        };
        let other = Arc::clone(&estimator);
        let other = thread::spawn(move || record(&other));
        record(&estimator);
        other.join().unwrap();

        let [one, two] = &estimator.windows;
        assert_eq!(one.total() + two.total(), 2);
        assert_eq!(estimator.current.load(Relaxed), 1);
        assert!(!estimator.busy.load(Relaxed));
        assert!(estimator.threshold().is_some());
    });
}

/// A call that starts meanwhile sees no threshold or a whole one.
#[test]
fn a_reader_sees_no_threshold_or_a_true_one() {
    loom::model(|| {
        let estimator = Arc::new(Estimator::default());
        let writer = Arc::clone(&estimator);
        let writer = thread::spawn(move || {
            writer.record(Observation::Ended(1), 1, || REFRESH_MICROS, &EAGER)
        });
        let seen = estimator.threshold();
        assert!(matches!(seen, None | Some(2)), "{seen:?}");
        writer.join().unwrap();
        assert_eq!(estimator.threshold(), Some(2));
    });
}

/// A thread that finds another one refreshing leaves its sample to the next refresh.
#[test]
fn the_next_refresh_sees_samples_that_the_last_one_missed() {
    loom::model(|| {
        let estimator = Arc::new(Estimator::default());
        let other = Arc::clone(&estimator);
        let other = thread::spawn(move || {
            other.record(Observation::CutOff(0), 1, || REFRESH_MICROS, &EAGER)
        });
        estimator.record(Observation::Ended(1), 1, || REFRESH_MICROS, &EAGER);
        other.join().unwrap();
        estimator.refresh(REFRESH_MICROS, &EAGER);
        assert_eq!(estimator.threshold(), Some(2));
    });
}
