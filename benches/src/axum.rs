//! A whole server, axum's hello world, as `wrk` sees it: with a limit and without, allowing and refusing.
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

const TOWER_GOVERNOR: &str = "tower_governor";

/// Of a second each.
const ROUNDS: usize = 5;

/// What is asked for, and the share of its time that ours may take.
struct Subject {
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
    let mut rows = case(
        &wrk,
        &server,
        ALLOWING,
        [
            subject(BARE, server::BARE, Some(1.04)),
            subject(OURS, server::OURS, None),
            subject(TOWER_GOVERNOR, server::GOVERNOR, None),
        ],
    )?;
    rows.extend(case(
        &wrk,
        &server,
        REFUSING,
        [
            subject(BARE, server::BARE, Some(1.0)),
            subject(OURS, server::OURS_REFUSING, None),
            subject(TOWER_GOVERNOR, server::GOVERNOR_REFUSING, None),
        ],
    )?);
    Ok(rows)
}

fn subject(name: &'static str, path: &'static str, goal: Option<f64>) -> Subject {
    Subject {
        name,
        path,
        goal,
        per_second: Vec::new(),
    }
}

fn case(
    wrk: &Wrk,
    server: &Server,
    name: &'static str,
    mut subjects: [Subject; 3],
) -> io::Result<Vec<Row>> {
    eprintln!("{name}: {ROUNDS} rounds of {} subjects", subjects.len());
    for _ in 0..ROUNDS {
        for subject in &mut subjects {
            subject
                .per_second
                .push(wrk.per_second(server.port(), subject.path)?);
        }
    }
    Ok(subjects
        .into_iter()
        .map(|subject| subject.row(name))
        .collect())
}

impl Subject {
    fn row(mut self, case: &'static str) -> Row {
        self.per_second.sort_by(f64::total_cmp);
        let nanos = |per_second: &f64| 1e9 / per_second;
        let median = self.per_second.get(self.per_second.len() / 2);
        Row {
            ns_min: self.per_second.last().map(nanos),
            ns_median: median.map(nanos),
            ns_max: self.per_second.first().map(nanos),
            per_second: self.per_second.last().copied(),
            goal: self.goal.map(Goal::Share),
            ..Row::new(case, self.name)
        }
    }
}
