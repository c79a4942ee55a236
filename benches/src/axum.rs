//! A complete server, axum's hello world, under load: with and without a limit, admitting and rejecting. Two more layers
//! make no decision and send the same bytes as ours.
//!
//! The server is a process on one core, and the load comes from another.

mod server;

use std::io;

pub(crate) use self::server::serve;
use crate::limit::PROCESSOR_CLOCK;
use crate::load::{self, Subject, find_taskset, start_self};
use crate::report::{BARE, OURS, Row};

const WITHOUT_FIELDS: &str = "axum hello, header key, without fields";
const WITH_FIELDS: &str = "axum hello, header key, with fields";
const REJECTING: &str = "axum hello, header key, rejecting";

const TOWER_GOVERNOR: &str = "tower_governor";
/// The same parts alone, which send the same bytes.
const FLOOR: &str = "floor";
/// The same response without a decision.
const CONSTANT: &str = "constant";

/// Equal speed.
const EQUAL: f64 = 1.0;
/// 0.97 of the rate of a layer that sends the same bytes without a decision.
const NEARLY_CONSTANT: f64 = 1.0309;

/// Measures the rows. Without `taskset`, returns none and prints the reason to stderr.
pub(crate) fn rows() -> Vec<Row> {
    measure().unwrap_or_else(|error| {
        eprintln!("no axum rows: {error}");
        Vec::new()
    })
}

fn measure() -> io::Result<Vec<Row>> {
    find_taskset()?;
    let server = start_self(&[])?;
    let subject = |case, name, path| Subject::new(case, name, &server, path);
    let without_fields = load::rows(
        [
            subject(WITHOUT_FIELDS, BARE, server::BARE),
            subject(WITHOUT_FIELDS, OURS, server::OURS),
            subject(WITHOUT_FIELDS, TOWER_GOVERNOR, server::GOVERNOR).goal(EQUAL),
            subject(WITHOUT_FIELDS, PROCESSOR_CLOCK, server::PROCESSOR_CLOCK),
            subject(WITHOUT_FIELDS, FLOOR, server::FLOOR),
        ],
        None,
    )?;
    let with_fields = load::rows(
        [
            subject(WITH_FIELDS, BARE, server::BARE),
            subject(WITH_FIELDS, OURS, server::OURS_WITH_FIELDS),
            subject(WITH_FIELDS, TOWER_GOVERNOR, server::GOVERNOR_WITH_FIELDS).goal(EQUAL),
            subject(WITH_FIELDS, FLOOR, server::FLOOR_WITH_FIELDS),
            subject(WITH_FIELDS, CONSTANT, server::FIELDS).goal(NEARLY_CONSTANT),
        ],
        None,
    )?;
    let rejecting = load::rows(
        [
            subject(REJECTING, BARE, server::BARE),
            subject(REJECTING, OURS, server::OURS_REJECTING).rejecting(),
            subject(REJECTING, TOWER_GOVERNOR, server::GOVERNOR_REJECTING).rejecting(),
            subject(REJECTING, FLOOR, server::FLOOR_REJECTING).rejecting(),
            subject(REJECTING, CONSTANT, server::REJECTION)
                .rejecting()
                .goal(NEARLY_CONSTANT),
        ],
        None,
    )?;
    Ok([without_fields, with_fields, rejecting].concat())
}
