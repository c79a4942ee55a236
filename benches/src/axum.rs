//! A whole server, axum's hello world, as `wrk` sees it: with a limit and without, allowing and refusing; and what layers take
//! that decide nothing and say the same.
//!
//! The server runs in a process of its own on one core, and `wrk` on another.

mod server;
mod wrk;

use std::io;

pub(crate) use self::server::serve;
use self::{server::Server, wrk::Wrk};
use crate::report::{BARE, Goal, OURS, Row};

const ALLOWING: &str = "axum hello, header key, allowing";
const REFUSING: &str = "axum hello, header key, refusing";

const FIELDS: &str = "axum hello, with the fields of a limit";
const REFUSAL: &str = "axum, the message of a refusal";

const TOWER_GOVERNOR: &str = "tower_governor";

/// Of a second each.
const ROUNDS: usize = 5;

/// What is asked for, and the share of its time that ours may take.
struct Subject {
    case: &'static str,
    name: &'static str,
    path: &'static str,
    goal: Option<f64>,
    per_second: Vec<f64>,
}

/// The rows; none, with a word on stderr, where they can't be had.
pub(crate) fn rows() -> Vec<Row> {
    measure().unwrap_or_else(|error| {
        eprintln!("no axum rows: {error}");
        Vec::new()
    })
}

fn measure() -> io::Result<Vec<Row>> {
    let wrk = Wrk::find()?;
    let server = Server::start()?;
    let mut rows = rounds(
        &wrk,
        &server,
        [
            Subject::new(ALLOWING, BARE, server::BARE).goal(1.04),
            Subject::new(ALLOWING, OURS, server::OURS),
            Subject::new(ALLOWING, TOWER_GOVERNOR, server::GOVERNOR),
            Subject::new(FIELDS, BARE, server::FIELDS),
        ],
    )?;
    rows.extend(rounds(
        &wrk,
        &server,
        [
            Subject::new(REFUSING, BARE, server::BARE).goal(1.0),
            Subject::new(REFUSING, OURS, server::OURS_REFUSING),
            Subject::new(REFUSING, TOWER_GOVERNOR, server::GOVERNOR_REFUSING),
            Subject::new(REFUSAL, BARE, server::REFUSAL),
        ],
    )?);
    Ok(rows)
}

/// Rounds of all these subjects, one after the other, so that whatever else the machine does meets each.
fn rounds<const N: usize>(
    wrk: &Wrk,
    server: &Server,
    mut subjects: [Subject; N],
) -> io::Result<Vec<Row>> {
    eprintln!("axum: {ROUNDS} rounds of {N} subjects");
    for _ in 0..ROUNDS {
        for subject in &mut subjects {
            subject
                .per_second
                .push(wrk.per_second(server.port(), subject.path)?);
        }
    }
    Ok(subjects.into_iter().map(Subject::row).collect())
}

impl Subject {
    fn new(case: &'static str, name: &'static str, path: &'static str) -> Self {
        Self {
            case,
            name,
            path,
            goal: None,
            per_second: Vec::new(),
        }
    }

    /// The share of this subject's time that ours may take.
    fn goal(self, share: f64) -> Self {
        Self {
            goal: Some(share),
            ..self
        }
    }

    fn row(mut self) -> Row {
        self.per_second.sort_by(f64::total_cmp);
        let nanos = |per_second: &f64| 1e9 / per_second;
        let median = self.per_second.get(self.per_second.len() / 2);
        Row {
            ns_min: self.per_second.last().map(nanos),
            ns_median: median.map(nanos),
            ns_max: self.per_second.first().map(nanos),
            per_second: self.per_second.last().copied(),
            goal: self.goal.map(Goal::Share),
            ..Row::new(self.case, self.name)
        }
    }
}
