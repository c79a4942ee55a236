//! How cost grows with the number of keys, policies, waiting calls, calls in flight, instances, and bytes of an upload.

mod decision;
mod fleet;
mod flight;
mod keys;
mod upload;

use crate::measure::{Case, Effort};
use crate::report::Row;

/// All rows. Without a `redis-server`, the rows of a fleet are missing, with a note on stderr.
pub(crate) fn rows(effort: Effort) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in cases() {
        let mut case = case;
        eprintln!("{}: {} rounds", case.name, effort.rounds);
        rows.extend(case.measure(effort));
    }
    rows.extend(flight::rows());
    match fleet::rows() {
        Ok(fleet) => rows.extend(fleet),
        Err(error) => eprintln!("no rows of a fleet: {error}"),
    }
    rows
}

fn cases() -> Vec<Case> {
    let mut cases = vec![
        decision::by_keys(),
        decision::by_policies(),
        decision::by_waiting(),
        keys::case(),
    ];
    cases.extend(upload::cases());
    cases
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_row_has_its_figure() {
        let effort = Effort {
            rounds: 1,
            sample: Duration::from_micros(1),
        };
        for row in rows(effort) {
            assert!(row.ns_min > Some(0.0) || row.bytes.is_some(), "{row:?}");
        }
    }

    #[test]
    fn a_call_in_flight_takes_more_memory_with_each_layer() {
        let rows = flight::rows();
        let bytes = |subject| {
            let row = rows.iter().find(|row| row.subject == subject);
            row.and_then(|row| row.bytes).unwrap()
        };
        assert!(bytes("bare") < bytes("retry"));
        assert!(bytes("retry") < bytes("both"));
        assert!(bytes("hedge") < bytes("both"));
    }
}
