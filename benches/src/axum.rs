//! A complete server, axum's hello world, under the load generator `wrk`: with and without a limit, admitting and
//! rejecting. Two more layers make no decision and send the same bytes.
//!
//! The server is a process on one core, and `wrk` runs on another.

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

/// Rounds of one second each.
const ROUNDS: usize = 5;

/// A path, and the goal for our share of its time.
struct Subject {
    case: &'static str,
    name: &'static str,
    path: &'static str,
    goal: Option<f64>,
    per_second: Vec<f64>,
}

/// Measures the rows. Without `wrk`, returns none and prints the reason to stderr.
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

/// Measures the subjects in turn in each round, so that other work on the machine affects all of them.
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

    /// Sets the goal for our share of this subject's time.
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
