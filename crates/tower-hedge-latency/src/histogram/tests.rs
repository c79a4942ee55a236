use super::*;

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
fn a_time_is_counted_in_its_bucket() {
    let histogram = Histogram::default();
    assert_eq!(histogram.add(7, 1), 0);
    assert_eq!(histogram.add(7, 16), 1);
    assert_eq!(histogram.add(1 << 40, 1), 0);
    assert_eq!((histogram.count(7), histogram.total()), (17, 18));
    assert_eq!((histogram.lowest(), histogram.highest()), (7, BUCKETS - 1));
}

#[test]
fn a_cleared_histogram_is_as_new() {
    let histogram = Histogram::default();
    for time in [1, 1000, 1 << 40] {
        histogram.add(time, 1);
    }
    histogram.clear();
    assert_eq!(histogram.total(), 0);
    histogram.add(5, 1);
    assert_eq!((histogram.lowest(), histogram.highest()), (5, 5));
}
