//! The server times of `docs/capacity.md` include the latest run, which `benches/README.md` has.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::ops::RangeInclusive;
use std::path::Path;

/// The cells of each row of the page's tables.
fn rows(page: &str) -> Vec<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join(page)).unwrap();
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

/// A range such as `2.7 to 6.1`, and the case and the subject that it is of: `` `case`, `subject` ``.
fn range(row: &[String]) -> Option<(String, String, RangeInclusive<f64>)> {
    let [_, _, measured, range, _] = row else {
        return None;
    };
    let (case, subject) = measured
        .strip_prefix('`')?
        .strip_suffix('`')?
        .split_once("`, `")?;
    let (least, most) = range.split_once(" to ")?;
    let range = least.parse().ok()?..=most.parse().ok()?;
    Some((case.to_owned(), subject.to_owned(), range))
}

#[test]
fn each_server_time_of_the_capacity_page_includes_the_latest_run_of_its_row() {
    let measured = rows("benches/README.md");
    let heading = |row: &Vec<String>| row.iter().position(|cell| cell == "server µs");
    let ranges: Vec<_> = rows("docs/capacity.md")
        .iter()
        .filter_map(|row| range(row))
        .collect();
    assert_eq!(ranges.len(), 4, "{ranges:?}");
    for (case, subject, range) in ranges {
        let is_it = |row: &Vec<String>| row.get(1) == Some(&case) && row.get(2) == Some(&subject);
        let at = measured.iter().rposition(is_it).expect("the row exists");
        let column = measured[..at].iter().rev().find_map(heading).unwrap();
        let micros: f64 = measured[at][column].parse().unwrap();
        // The page has one digit after the point, the README two.
        let bounds = range.start() - 0.05..=range.end() + 0.05;
        assert!(
            bounds.contains(&micros),
            "{case}, {subject}: {micros} is not in {range:?}"
        );
    }
}
