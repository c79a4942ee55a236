use std::collections::HashSet;
use std::time::Duration;

use super::*;

const TINY: Effort = Effort {
    rounds: 3,
    sample: Duration::from_micros(10),
};

fn rows() -> Vec<Row> {
    measure(&mut cases(None), TINY)
}

#[test]
fn a_case_has_one_row_per_subject_and_each_is_timed() {
    let mut cases = cases(None);
    let mut rows = measure(&mut cases, TINY);
    let names: HashSet<_> = rows.iter().map(|row| (row.case, row.subject)).collect();
    assert_eq!(names.len(), rows.len());
    let weighed = WEIGHED.map(|(figure, _)| about(figure, &cases, &mut rows).count());
    assert_eq!(weighed, [2, 2]);
    let weighed: usize = weighed.iter().sum();
    let timed = |row: &&Row| ![limit::RESIDENT, limit::FLOOD].contains(&row.case);
    assert_eq!(rows.iter().filter(timed).count(), rows.len() - weighed);
    for row in rows.iter().filter(timed) {
        let nanos = [row.ns_min, row.ns_median, row.ns_max].map(Option::unwrap);
        assert!(nanos[0] > 0.0 && nanos.is_sorted(), "{row:?}");
    }
}

#[test]
fn every_case_has_ours_its_bare_service_and_a_goal_against_a_peer() {
    for case in cases(None) {
        let names: Vec<_> = case.subjects.iter().map(|subject| subject.name).collect();
        // A case of decisions alone has no bare service.
        let bare = names.contains(&report::BARE) != names.contains(&"governor");
        assert!(names.contains(&report::OURS) && bare, "{names:?}");
    }
    assert!(rows().iter().any(|row| row.goal.is_some()));
}

#[test]
fn a_retry_layer_allocates_nothing_on_success() {
    let rows = rows();
    let heap = |subject| {
        let row = rows
            .iter()
            .find(|row| row.case == retry::PLAIN && row.subject == subject)
            .unwrap();
        (row.allocs, row.bytes)
    };
    assert_eq!(heap("ours"), heap("bare"));
    assert_eq!(heap("tower-resilience").0, Some(2.0), "the counter counts");
}

#[test]
fn a_hedge_layer_allocates_nothing_unless_it_hedges() {
    let rows = rows();
    let is_ours = |row: &&Row| row.case.starts_with("hedge armed") && row.subject == report::OURS;
    for row in rows.iter().filter(is_ours) {
        assert_eq!(row.allocs, Some(0.0), "{row:?}");
    }
    let peer = |row: &&Row| row.case == hedge::AT_ONCE && row.subject == "tower-resilience";
    let peer = rows.iter().find(peer).unwrap();
    assert_eq!(peer.allocs, Some(6.0), "the counter counts");
}

#[test]
fn a_limit_allocates_nothing_without_header_fields() {
    let rows = rows();
    let heap = |case: &str, subject: &str| {
        let mut rows = rows.iter();
        let row = rows.find(|row| row.case == case && row.subject == subject);
        let row = row.unwrap();
        (row.allocs, row.bytes)
    };
    let cases = [limit::WITHOUT_FIELDS, limit::FIXED, limit::BUCKET];
    for case in cases {
        assert_eq!(heap(case, report::OURS), heap(case, report::BARE), "{case}");
    }
    for case in [limit::HOT, limit::MANY] {
        assert_eq!(heap(case, report::OURS), (Some(0.0), Some(0.0)), "{case}");
    }
    let peer = heap(limit::BUCKET, "tower-resilience").0;
    assert_eq!(peer, Some(2.0), "the counter counts");
}
