use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::trigger::micros;

const SECOND: u64 = 1_000_000;

/// The 95th percentile over windows of ten seconds.
const P95: QuantileTarget = QuantileTarget {
    above: 50_000_000,
    window: 10 * SECOND,
    samples: 200,
};

/// Records a sample in each millisecond from `start` on. `latency` maps the sample's number to its latency.
fn record(estimator: &Estimator, start: u64, count: u64, latency: impl Fn(u64) -> u64) -> u64 {
    for n in 0..count {
        estimator.record(Observation::Ended(latency(n)), 1, || start + n * 1000, &P95);
    }
    start + count * 1000
}

fn threshold(estimator: &Estimator) -> u64 {
    estimator.threshold().expect("samples enough")
}

#[test]
fn no_threshold_is_known_before_there_are_enough_samples() {
    let estimator = Estimator::default();
    record(&estimator, 0, 199, |_| 1000);
    assert_eq!(estimator.threshold(), None);
    // The threshold is refreshed after 100 ms, so it includes the 300th sample.
    record(&estimator, 199_000, 101, |_| 1000);
    assert!(estimator.threshold().is_some());
}

#[test]
fn the_threshold_is_the_quantile_of_both_windows() {
    let estimator = Estimator::default();
    // 1 ms to 100 ms, evenly.
    record(&estimator, 0, 25_000, |n| 1000 * (1 + n % 100));
    let value = threshold(&estimator);
    assert!((94_000..=98_000).contains(&value), "{value}");
}

#[test]
fn samples_older_than_two_windows_are_forgotten() {
    let estimator = Estimator::default();
    let now = record(&estimator, 0, 10_000, |_| 900_000);
    let now = record(&estimator, now, 10_000, |_| 1000);
    assert!(threshold(&estimator) > 900_000, "half of it still counts");
    record(&estimator, now, 10_100, |_| 1000);
    assert!(threshold(&estimator) < 1100);
}

#[test]
fn a_quiet_service_keeps_its_threshold_and_a_slow_one_its_samples() {
    let estimator = Estimator::default();
    let now = record(&estimator, 0, 10_000, |_| 50_000);
    let before = threshold(&estimator);
    // A day later, one slow response does not change the threshold.
    estimator.record(
        Observation::Ended(5_000_000),
        1,
        || now + 24 * 3600 * SECOND,
        &P95,
    );
    assert_eq!(threshold(&estimator), before);
    // A sample every ten seconds: a window is not closed before it has 200 of them.
    let estimator = Estimator::default();
    for n in 0..250 {
        let seen = Observation::Ended(if n < 15 { 80_000 } else { 20_000 });
        estimator.record(seen, 1, || n * 10 * SECOND, &P95);
    }
    assert!(threshold(&estimator) > 80_000, "the first 200 still count");
}

#[test]
fn many_samples_at_one_instant_refresh_too() {
    let estimator = Estimator::default();
    for _ in 0..REFRESH_SAMPLES {
        estimator.record(Observation::Ended(1000), 1, || 7, &P95);
    }
    assert!(estimator.threshold().is_some());
}

/// The clocks of two threads disagree.
#[test]
fn a_clock_reading_before_the_last_refresh_counts_as_no_time() {
    let estimator = Estimator::default();
    let now = record(&estimator, SECOND, 1000, |_| 1000);
    let before = threshold(&estimator);
    for n in 0..100 {
        estimator.record(Observation::Ended(u64::MAX), 1, || now - SECOND - n, &P95);
    }
    assert_eq!(threshold(&estimator), before);
    assert!(before < 1100);
}

#[test]
fn extreme_values_do_not_panic() {
    let estimator = Estimator::default();
    let extreme = QuantileTarget {
        above: u64::MAX,
        window: 0,
        samples: 0,
    };
    for now in [u64::MAX, 0, u64::MAX] {
        for seen in [Observation::Ended, Observation::CutOff] {
            estimator.record(seen(u64::MAX), u32::MAX, || now, &extreme);
            estimator.record(seen(0), u32::MAX, || now, &extreme);
        }
    }
    assert!(estimator.threshold().is_some());
}

#[test]
fn no_sample_is_lost_among_threads() {
    let estimator = Estimator::default();
    let endless = QuantileTarget {
        window: u64::MAX,
        ..P95
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let record = |n| estimator.record(Observation::Ended(n), 1, || n, &endless);
            scope.spawn(move || (0..10_000).for_each(record));
        }
    });
    assert_eq!(estimator.windows[0].total(), 40_000);
}

/// At high rates the estimator samples an even share of the calls, and each sample represents several calls. At low
/// rates it samples all calls again.
#[test]
fn of_many_calls_one_of_sixteen_is_enough() {
    let estimator = Estimator::default();
    let (mut asked, mut now) = (0, 0);
    let mut record = |calls: u64, micros: u64| {
        let mut taken = 0;
        for _ in 0..calls {
            asked += 1;
            now += micros;
            if let Some(calls) = estimator.counts_for(asked) {
                taken += 1;
                // 1 ms to 100 ms, evenly.
                let seen = Observation::Ended(1000 * (1 + asked % 100));
                estimator.record(seen, calls, || now, &P95);
            }
        }
        taken
    };
    assert_eq!(record(40_000, 10), 40_000, "no more than plenty");
    record(1_000_000, 10);
    let taken = record(1_000_000, 10);
    assert!((62_400..=62_600).contains(&taken), "{taken}");
    let value = threshold(&estimator);
    assert!((94_000..=98_000).contains(&value), "{value}");
    // Two calls a second: within two windows, every call is sampled.
    record(60, 500_000);
    assert_eq!(record(1_000, 500_000), 1_000);
    let value = threshold(&estimator);
    assert!((94_000..=98_000).contains(&value), "{value}");
}

/// Also if the busy window is cleared only then.
#[test]
fn every_call_of_a_service_that_gets_quiet_is_a_sample_again() {
    let estimator = Estimator::default();
    let (mut now, mut asked) = (0, 0);
    let mut record = |calls: u64, micros: u64| {
        let (before, mut taken) = (asked, 0);
        while asked < before + calls {
            asked += 1;
            now += micros;
            if let Some(calls) = estimator.counts_for(asked) {
                taken += 1;
                estimator.record(Observation::Ended(20_000), calls, || now, &P95);
            }
        }
        taken
    };
    // 100,000 a second, in two and a half full windows.
    assert!(record(2_500_000, 10) < 1_000_000);
    // Two a second, for half a minute and then for ten.
    record(60, 500_000);
    assert_eq!(record(1_200, 500_000), 1_200);
}

/// Two samples a second after a busy window are too few for a percentile, even if each represents many calls.
#[test]
fn a_window_is_full_by_its_number_of_samples_and_not_of_calls() {
    let estimator = Estimator::default();
    estimator.windows[1].ended.add(20_000, 400_000);
    estimator.rarity.store(RAREST, Relaxed);
    let record = |n| {
        let calls = 1 << estimator.rarity.load(Relaxed);
        estimator.record(Observation::Ended(20_000), calls, || n * SECOND / 2, &P95);
    };
    (0..200).for_each(record);
    assert_eq!(estimator.current.load(Relaxed), 0);
    (200..230).for_each(record);
    assert_eq!(estimator.current.load(Relaxed), 1);
    let full = estimator.windows[0].total();
    assert!((200..=210).contains(&full), "{full}");
}

/// Lognormal around 10 ms with σ 0.5.
#[test]
fn the_share_above_the_threshold_is_right_when_few_of_many_calls_are_sampled() {
    for (above, samples) in [(100_000_000, 100), (50_000_000, 200), (10_000_000, 1000)] {
        let target = QuantileTarget {
            above,
            samples,
            ..P95
        };
        let mut random = StdRng::seed_from_u64(1);
        let mut draw = || {
            let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
            let normal = radius * (std::f64::consts::TAU * random.random::<f64>()).cos();
            micros(Duration::from_secs_f64(0.01 * (0.5 * normal).exp()))
        };
        let estimator = Estimator::default();
        for call in 0..800_000 {
            if let Some(calls) = estimator.counts_for(call) {
                // 40,000 a second.
                estimator.record(Observation::Ended(draw()), calls, || 25 * call, &target);
            }
        }
        assert!(estimator.rarity.load(Relaxed) > 0);
        let threshold = threshold(&estimator);
        let late = (0..200_000).filter(|_| draw() > threshold).count();
        let expected = usize::try_from(above).unwrap_or_default() / 5_000;
        assert!(
            late.abs_diff(expected) < expected / 10,
            "{late}, not {expected}"
        );
    }
}

/// Every second, third or later request in turn is slow.
#[test]
fn no_rhythm_of_the_calls_hides_from_the_samples() {
    let estimator = Estimator::default();
    estimator.rarity.store(RAREST, Relaxed);
    for period in [2, 3, 7, 16, 55, 64, 100] {
        let (mut all, mut slow) = (0, 0);
        for call in 0..1_000_000 {
            let counts = estimator.counts_for(call).is_some();
            all += u32::from(counts);
            slow += u32::from(counts && call % period == 0);
        }
        let share = f64::from(slow) / f64::from(all) * period as f64;
        assert!((0.9..1.1).contains(&share), "{share} of one in {period}");
    }
}

#[test]
fn a_window_without_end_is_closed_before_its_counts_overflow() {
    let estimator = Estimator::default();
    let endless = QuantileTarget {
        window: u64::MAX,
        ..P95
    };
    for _ in 0..100 {
        estimator.record(Observation::Ended(20_000), u32::MAX / 10, || 7, &endless);
        let all = estimator.windows.each_ref().map(Sample::total);
        assert!(
            all.iter().all(|calls| *calls < u64::from(u32::MAX)),
            "{all:?}"
        );
        assert!(threshold(&estimator) > 20_000);
    }
}

/// A call that was cut off would have taken longer than its cut. The threshold must be right although nothing more is
/// known about the call.
#[test]
fn calls_that_were_cut_off_do_not_lower_the_threshold() {
    let estimator = Estimator::default();
    // 1 ms to 100 ms, evenly. The calls above 50 ms are cut off later.
    for n in 0..10_000_u64 {
        let (took, limit) = (1000 * (1 + n % 100), 50_000 + 1000 * (n * 7 % 53));
        let seen = match took > limit {
            true => Observation::CutOff(limit),
            false => Observation::Ended(took),
        };
        estimator.record(seen, 1, || n * 1000, &P95);
    }
    let value = threshold(&estimator);
    assert!((93_000..=99_000).contains(&value), "{value}");
}

/// Every late call is then only known to be longer than the trigger. The trigger must rise past its own bucket before
/// the other latencies become visible.
#[test]
fn hedges_that_answer_immediately_do_not_hold_the_threshold() {
    let estimator = Estimator::default();
    let mut late = 0;
    for n in 0..100_000_u64 {
        // 200 ms to 299 ms, evenly, and later 20 ms more.
        let slower = if n < 20_000 { 0 } else { 20_000 };
        let took = 200_000 + 1000 * (n * 37 % 100) + slower;
        let seen = match estimator.threshold() {
            Some(trigger) if took > trigger => Observation::CutOff(trigger + 1),
            _ => Observation::Ended(took),
        };
        late += u64::from(n >= 90_000 && matches!(seen, Observation::CutOff(_)));
        estimator.record(seen, 1, || n * 1000, &P95);
    }
    assert!((300..=700).contains(&late), "{late} of 10,000");
}

/// All buckets fill in step, so no bucket shows the elapsed time.
#[test]
fn latencies_in_lockstep_refresh_the_threshold_within_100_ms() {
    let estimator = Estimator::default();
    let (mut latest, step) = (0, 10_000);
    for n in 0..2_000_u64 {
        // 25 latencies in turn, each in its own bucket, a hundred calls a second.
        let now = n * step;
        let seen = Observation::Ended(10_000 + 1_000 * (n % 25));
        estimator.record(seen, 1, || now, &P95);
        let refreshed = estimator.refreshed.load(Relaxed);
        latest = latest.max(now - refreshed);
    }
    assert!(latest <= 100_000 + step, "{latest} µs");
}

/// 300 samples are enough for a 95th percentile, and too few for a first 99th.
#[test]
fn another_quantile_is_read_from_the_present_samples() {
    let estimator = Estimator::default();
    // 1 ms to 100 ms, evenly.
    let now = record(&estimator, 0, 300, |n| 1000 * (1 + n % 100));
    assert!((94_000..=98_000).contains(&threshold(&estimator)));
    let p99 = QuantileTarget {
        above: 10_000_000,
        samples: 1_000,
        ..P95
    };
    estimator.apply(now, &p99);
    assert!((98_000..=102_000).contains(&threshold(&estimator)));
    // The threshold continues to follow before it has 1,000 samples.
    for n in 0..200 {
        estimator.record(Observation::Ended(200_000), 1, || now + n * 1000, &p99);
    }
    assert!(threshold(&estimator) > 190_000);
    estimator.apply(
        now,
        &QuantileTarget {
            above: 500_000_000,
            samples: 100,
            ..P95
        },
    );
    assert!(threshold(&estimator) < 100_000);
}

#[test]
fn another_quantile_of_too_few_samples_stays_unknown() {
    let estimator = Estimator::default();
    let now = record(&estimator, 0, 50, |_| 20_000);
    estimator.apply(
        now,
        &QuantileTarget {
            above: 10_000_000,
            samples: 1_000,
            ..P95
        },
    );
    assert_eq!(estimator.threshold(), None);
}
