//! The load generator `wrk`, and the rows of servers under its load.

use std::io;
use std::process::{Command, Stdio};

use crate::report::{Goal, Row};

/// The cores of the measured server and of `wrk`.
pub(crate) const CORES: [&str; 2] = ["0", "1"];

/// Rounds of one second each.
const ROUNDS: usize = 5;

/// A path of a server.
pub(crate) struct Subject {
    case: &'static str,
    name: &'static str,
    port: u16,
    path: &'static str,
    goal: Option<f64>,
    per_second: Vec<f64>,
}

/// Measures the subjects in turn in each round, so that other work on the machine affects all of them.
///
/// # Errors
///
/// Returns an error if `wrk` or `taskset` is not installed or fails.
pub(crate) fn rows<const N: usize>(mut subjects: [Subject; N]) -> io::Result<Vec<Row>> {
    let wrk = Wrk::find()?;
    eprintln!("{}: {ROUNDS} rounds of {N} subjects", subjects[0].case);
    for _ in 0..ROUNDS {
        for subject in &mut subjects {
            let per_second = wrk.per_second(subject.port, subject.path)?;
            subject.per_second.push(per_second);
        }
    }
    Ok(subjects.into_iter().map(Subject::row).collect())
}

impl Subject {
    pub(crate) fn new(
        case: &'static str,
        name: &'static str,
        port: u16,
        path: &'static str,
    ) -> Self {
        Self {
            case,
            name,
            port,
            path,
            goal: None,
            per_second: Vec::new(),
        }
    }

    /// Sets the goal for our share of this subject's time.
    pub(crate) fn goal(self, share: f64) -> Self {
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

/// An installed `wrk`.
struct Wrk(());

impl Wrk {
    /// # Errors
    ///
    /// Returns an error if `wrk` or `taskset` does not start.
    fn find() -> io::Result<Self> {
        for tool in ["wrk", "taskset"] {
            let mut version = Command::new(tool);
            version
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            version
                .status()
                .map_err(|error| io::Error::other(format!("{tool}: {error}")))?;
        }
        Ok(Self(()))
    }

    /// Requests per second over 64 persistent connections.
    ///
    /// # Errors
    ///
    /// Returns an error if `wrk` fails.
    fn per_second(&self, port: u16, path: &str) -> io::Result<f64> {
        let output = Command::new("taskset")
            .args(["-c", CORES[1], "wrk", "-t1", "-c64", "-d1s"])
            .args(["-H", "x-api-key: client-00000042"])
            .arg(format!("http://127.0.0.1:{port}{path}"))
            .stdin(Stdio::null())
            .output()?;
        let report = String::from_utf8_lossy(&output.stdout);
        requests_per_second(&report).ok_or_else(|| {
            let log = String::from_utf8_lossy(&output.stderr);
            io::Error::other(format!("wrk said:\n{report}{log}"))
        })
    }
}

/// The number in `Requests/sec: 123456.78`.
fn requests_per_second(report: &str) -> Option<f64> {
    let (_, rest) = report.split_once("Requests/sec:")?;
    rest.split_whitespace()
        .next()?
        .parse()
        .ok()
        .filter(|&number| number > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_found_in_what_wrk_says() {
        let report =
            "Running 1s test\n  Latency  1.00ms\nRequests/sec:  98765.43\nTransfer/sec: 9.00MB\n";
        assert_eq!(requests_per_second(report), Some(98765.43));
        assert_eq!(requests_per_second("unable to connect"), None);
    }
}
