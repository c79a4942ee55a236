use proptest::prelude::*;

use super::*;

fn histogram(times: &[u64]) -> Histogram {
    let histogram = Histogram::new();
    for time in times {
        histogram.add(*time);
    }
    histogram
}

/// Billionths that may be above the quantile `q` per cent.
fn above(per_mille: u64) -> u64 {
    (1000 - per_mille) * 1_000_000
}

#[test]
fn buckets_follow_each_other_without_gap_or_overlap() {
    for index in 0..BUCKETS {
        let (start, end) = (lower_bound(index), lower_bound(index + 1));
        assert!(start < end);
        assert_eq!((bucket(start), bucket(end - 1)), (index, index));
        // As fine as promised.
        assert!(start < FINE || (end - start) * FINE <= start);
    }
    assert_eq!(lower_bound(BUCKETS), 1 << 36);
    assert_eq!(bucket(1 << 36), BUCKETS - 1);
    assert_eq!(bucket(u64::MAX), BUCKETS - 1);
}

#[test]
fn too_few_times_have_no_quantile() {
    let empty = Histogram::new();
    assert_eq!(quantile([&empty, &empty], above(950), 0), None);
    let one = histogram(&[7]);
    assert_eq!(quantile([&one, &empty], above(950), 2), None);
    assert_eq!(quantile([&one, &one], above(950), 2), Some(8));
}

#[test]
fn two_windows_count_together() {
    let (fast, slow) = (histogram(&[1; 95]), histogram(&[30; 5]));
    assert_eq!(quantile([&fast, &slow], above(950), 100), Some(2));
    // A tie of the order changes nothing.
    assert_eq!(quantile([&slow, &fast], above(960), 100), Some(31));
}

/// At a constant latency of 15.10 ms, 95 % of the way through its bucket are 15.09 ms: every call
/// would be late.
#[test]
fn a_constant_latency_is_not_above_its_own_quantile() {
    for time in [15_103_u64, 15_000, 100_000, 33, 1] {
        let constant = histogram(&vec![time; 1000]);
        let value = quantile([&constant, &Histogram::new()], above(950), 100).unwrap();
        assert!(
            value > time && value <= time + 1 + time / 31,
            "{value} for {time}"
        );
    }
}

#[test]
fn a_cleared_histogram_is_as_new() {
    let histogram = histogram(&[1, 1000, 1 << 40]);
    assert_eq!(histogram.total(), 3);
    assert_eq!(histogram.clear(), 3);
    assert_eq!((histogram.total(), histogram.grand_total()), (0, 0));
    histogram.add(5);
    assert_eq!(quantile([&histogram, &Histogram::new()], 0, 1), Some(6));
}

proptest! {
    /// Against the sorted list: in the same bucket, or at its end.
    #[test]
    fn a_quantile_is_within_one_bucket_of_the_exact_one(
        times in prop::collection::vec(prop_oneof![0..64_u64, 0..100_000_u64, 0..1_u64 << 37], 1..400),
        split in 0..400_usize,
        per_mille in 1..1000_u64,
    ) {
        let (one, other) = times.split_at(split.min(times.len()));
        let value = quantile([&histogram(one), &histogram(other)], above(per_mille), 1).unwrap();
        let mut sorted = times.clone();
        sorted.sort_unstable();
        let total = times.len() as u64;
        let rank = total - share(total, above(per_mille));
        let exact = sorted[usize::try_from(rank).unwrap() - 1];
        let bucket = bucket(exact);
        prop_assert!((lower_bound(bucket)..=lower_bound(bucket + 1)).contains(&value), "{value} for {exact}");
    }

    #[test]
    fn a_higher_quantile_is_never_lower(
        times in prop::collection::vec(0..1_000_000_u64, 1..300),
    ) {
        let (all, empty) = (histogram(&times), Histogram::new());
        let values: Vec<u64> = (1..1000)
                .step_by(37)
            .map(|per_mille| quantile([&all, &empty], above(per_mille), 1).unwrap())
            .collect();
        prop_assert!(values.is_sorted());
    }
}
