use proptest::prelude::*;

use super::*;

/// Calls with these latencies.
fn sample(times: &[u64]) -> Sample {
    let sample = Sample::default();
    for time in times {
        sample.ended.add(*time, 1);
    }
    sample
}

fn empty() -> Sample {
    Sample::default()
}

/// The share of calls above the quantile `per_mille`, in billionths.
fn above(per_mille: u64) -> u64 {
    (1000 - per_mille) * 1_000_000
}

/// The range of the bucket that contains `time`, its upper end included.
fn bucket_of(time: u64) -> std::ops::RangeInclusive<u64> {
    let bucket = (0..1023).find(|bucket| time < lower_bound(bucket + 1));
    let bucket = bucket.unwrap_or(1023);
    lower_bound(bucket)..=lower_bound(bucket + 1)
}

#[test]
fn too_few_times_have_no_quantile() {
    assert_eq!(quantile([&empty(), &empty()], above(950), 0), None);
    let one = sample(&[7]);
    assert_eq!(quantile([&one, &empty()], above(950), 2), None);
    assert_eq!(quantile([&one, &one], above(950), 2), Some(8));
}

#[test]
fn two_windows_count_together() {
    let (fast, slow) = (sample(&[1; 95]), sample(&[30; 5]));
    assert_eq!(quantile([&fast, &slow], above(950), 100), Some(2));
    // The order of the samples changes nothing.
    assert_eq!(quantile([&slow, &fast], above(960), 100), Some(31));
}

/// With a constant latency of 15.10 ms, 95 % of its bucket is 15.09 ms, which would make every call late.
#[test]
fn a_constant_latency_is_not_above_its_own_quantile() {
    for time in [15_103_u64, 15_000, 100_000, 33, 1] {
        let constant = sample(&vec![time; 1000]);
        let value = quantile([&constant, &empty()], above(950), 100).unwrap();
        assert!(
            value > time && value <= time + 1 + time / 31,
            "{value} for {time}"
        );
    }
}

/// Ten of forty calls were cut off at 10 µs. Their weight is shared among the longer calls, so that 62.5 % of all
/// calls took at most 20 µs.
#[test]
fn a_call_that_was_cut_off_counts_as_the_longer_calls() {
    let sample = sample(&[[5; 10], [20; 10], [30; 10]].concat());
    sample.cut_off.add(10, 10);
    let quantile = |per_mille| quantile([&sample, &empty()], above(per_mille), 1);
    assert_eq!(quantile(250), Some(6));
    assert_eq!(quantile(500), Some(21));
    assert_eq!(quantile(625), Some(21));
    assert_eq!(quantile(650), Some(31));
}

/// First attempts that never end. A single attempt that ended late by chance does not represent all of them. Neither do
/// nine attempts, nor a hundredth of the late share of very many calls.
#[test]
fn where_few_calls_took_longer_the_quantile_is_the_cut() {
    for (times, late) in [(1, 0), (1, 9), (1000, 499)] {
        let sample = empty();
        sample.ended.add(5, 900 * times);
        sample.cut_off.add(1000, 100 * times);
        sample.ended.add(1_000_000, late);
        let value = quantile([&sample, &empty()], above(950), 1).unwrap();
        assert!(bucket_of(1000).contains(&value), "{value} with {late}");
        assert_eq!(quantile([&sample, &empty()], above(850), 1), Some(6));
    }
}

proptest! {
    /// Compares with the sorted list: in the same bucket, or at its end.
    #[test]
    fn a_quantile_is_within_one_bucket_of_the_exact_one(
        times in prop::collection::vec(prop_oneof![0..64_u64, 0..100_000_u64, 0..1_u64 << 37], 1..400),
        split in 0..400_usize,
        per_mille in 1..1000_u64,
    ) {
        let (one, other) = times.split_at(split.min(times.len()));
        let value = quantile([&sample(one), &sample(other)], above(per_mille), 1).unwrap();
        let mut sorted = times.clone();
        sorted.sort_unstable();
        let total = times.len() as u64;
        let rank = total - share(total, above(per_mille));
        let exact = sorted[usize::try_from(rank).unwrap() - 1];
        prop_assert!(bucket_of(exact).contains(&value), "{value} for {exact}");
    }

    /// A cut at or after the quantile does not move it.
    #[test]
    fn a_cut_beyond_the_quantile_changes_nothing(
        times in prop::collection::vec(0..1_000_000_u64, 100..400),
        per_mille in 1..1000_u64,
    ) {
        let exact = quantile([&sample(&times), &empty()], above(per_mille), 1).unwrap();
        let cut = empty();
        for time in &times {
            match *time > exact {
                true => cut.cut_off.add(exact, 1),
                false => cut.ended.add(*time, 1),
            };
        }
        let value = quantile([&cut, &empty()], above(per_mille), 1).unwrap();
        prop_assert!(bucket_of(exact).contains(&value), "{value}, not {exact}");
    }

    /// Compares with Kaplan and Meier's product in floating point, over times with one bucket each.
    #[test]
    fn a_quantile_of_calls_that_were_cut_off_is_kaplan_and_meiers(
        calls in prop::collection::vec((0..32_u64, any::<bool>()), 1..200),
        per_mille in 1..1000_u64,
    ) {
        let all = empty();
        for (time, ended) in &calls {
            match ended {
                true => all.ended.add(*time, 1),
                false => all.cut_off.add(*time, 1),
            };
        }
        let total = calls.len() as u64;
        let wanted = share(total, above(per_mille)) as f64 / total as f64;
        let (mut survive, mut left, mut any_cut, mut expected) = (1.0, total as f64, false, None);
        for time in 0..32 {
            let count = |which| calls.iter().filter(|call| **call == (time, which)).count() as f64;
            let (ended, cut) = (count(true), count(false));
            if ended > 0.0 {
                survive *= 1.0 - ended / left;
                // If both are equal except for the last digit, either is right.
                prop_assume!((survive - wanted).abs() > 1e-7 || (survive - wanted).abs() < 1e-12);
                if survive <= wanted + 1e-12 {
                    expected = (!any_cut || left >= 10.0).then_some(time);
                    break;
                }
            }
            left -= ended + cut;
            any_cut |= cut > 0.0;
        }
        // Too few calls took longer, so the time of the cut counts.
        let expected = expected.unwrap_or_else(|| {
            let mut times: Vec<u64> = calls.iter().map(|(time, _)| *time).collect();
            times.sort_unstable();
            let rank = total - share(total, above(per_mille));
            times[usize::try_from(rank.max(1)).unwrap() - 1]
        });
        let value = quantile([&all, &empty()], above(per_mille), 1).unwrap();
        prop_assert!((expected..=expected + 1).contains(&value), "{value}, not {expected}");
    }

    #[test]
    fn a_higher_quantile_is_never_lower(
        times in prop::collection::vec(0..1_000_000_u64, 1..300),
    ) {
        let all = sample(&times);
        let values: Vec<u64> = (1..1000)
            .step_by(37)
            .map(|per_mille| quantile([&all, &empty()], above(per_mille), 1).unwrap())
            .collect();
        prop_assert!(values.is_sorted(), "{values:?}");
    }
}
