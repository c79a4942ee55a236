//! The load generator `wrk`, and the rows of servers under its load.

use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, io};

use ::tests::servers::{Server, free_port};

use crate::report::{Goal, Row};

/// The cores of the measured server and of `wrk`.
pub(crate) const CORES: [&str; 2] = ["0", "1"];

/// Rounds of one second each.
const ROUNDS: usize = 20;

/// Starts a server in a process of this program, with these options in addition to its port.
///
/// # Errors
///
/// Returns an error if the path of this program is unknown.
pub(crate) fn start_self(options: &[&str]) -> io::Result<Server> {
    let program = env::current_exe()?.to_string_lossy().into_owned();
    Ok(Server::start_on(free_port, |port| {
        let command = ["taskset", "-c", CORES[0], &program, "--serve", port];
        let command = command.iter().chain(options);
        command.map(|&part| part.to_owned()).collect()
    }))
}

/// A path of a server.
pub(crate) struct Subject<'a> {
    case: &'static str,
    name: &'static str,
    server: &'a Server,
    path: &'static str,
    goal: Option<f64>,
    loads: Vec<Load>,
}

/// One round.
struct Load {
    per_second: f64,
    requests: f64,
    /// The server's processor time, in steps of 10 ms.
    busy: Duration,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(
        case: &'static str,
        name: &'static str,
        server: &'a Server,
        path: &'static str,
    ) -> Self {
        Self {
            case,
            name,
            server,
            path,
            goal: None,
            loads: Vec::new(),
        }
    }

    /// Sets the goal for our share of this subject's time.
    pub(crate) fn goal(self, share: f64) -> Self {
        Self {
            goal: Some(share),
            ..self
        }
    }

    fn row(self) -> Row {
        let nanos = |load: &Load| 1e9 / load.per_second;
        let row = Row::of_rounds(self.case, self.name, self.loads.iter().map(nanos).collect());
        let requests: f64 = self.loads.iter().map(|load| load.requests).sum();
        let busy: Duration = self.loads.iter().map(|load| load.busy).sum();
        let per_request = busy.as_secs_f64() * 1e6 / requests;
        Row {
            per_second: row.ns_median.map(|nanos| 1e9 / nanos),
            server_cpu_us: Some(per_request),
            goal: self.goal.map(Goal::Share),
            ..row
        }
    }
}

/// An installed `wrk`.
pub(crate) struct Wrk(());

impl Wrk {
    /// # Errors
    ///
    /// Returns an error if `wrk` or `taskset` does not start.
    pub(crate) fn find() -> io::Result<Self> {
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

    /// Measures the subjects in turn in each round, so that other work on the machine affects all of them. The next
    /// round begins with the next subject.
    ///
    /// # Errors
    ///
    /// Returns an error if `wrk` fails.
    pub(crate) fn rows<const N: usize>(
        &self,
        mut subjects: [Subject<'_>; N],
    ) -> io::Result<Vec<Row>> {
        eprintln!("{}: {ROUNDS} rounds of {N} subjects", subjects[0].case);
        for round in 0..ROUNDS {
            for turn in 0..N {
                let subject = &mut subjects[(round + turn) % N];
                let load = Self::load(subject)?;
                subject.loads.push(load);
            }
        }
        Ok(subjects.into_iter().map(Subject::row).collect())
    }

    /// A second of requests over 64 persistent connections.
    ///
    /// # Errors
    ///
    /// Returns an error if `wrk` fails.
    fn load(subject: &Subject<'_>) -> io::Result<Load> {
        let Subject { server, path, .. } = subject;
        let busy = || Duration::from_micros(server.cpu_micros());
        let before = busy();
        let output = Command::new("taskset")
            .args(["-c", CORES[1], "wrk", "-t1", "-c64", "-d1s"])
            .args(["-H", "x-api-key: client-00000042"])
            .arg(format!("http://127.0.0.1:{}{path}", server.port()))
            .stdin(Stdio::null())
            .output()?;
        let report = String::from_utf8_lossy(&output.stdout);
        let busy = busy().saturating_sub(before);
        let (per_second, requests) = rate(&report).ok_or_else(|| {
            let log = String::from_utf8_lossy(&output.stderr);
            io::Error::other(format!("wrk said:\n{report}{log}"))
        })?;
        Ok(Load {
            per_second,
            requests,
            busy,
        })
    }
}

/// The numbers in `Requests/sec: 123456.78` and `123456 requests in 1.00s`.
fn rate(report: &str) -> Option<(f64, f64)> {
    let (before, after) = report.split_once("Requests/sec:")?;
    let (before, _) = before.split_once(" requests in ")?;
    let per_second = after.split_whitespace().next()?.parse().ok()?;
    let requests = before.split_whitespace().last()?.parse().ok()?;
    (per_second > 0.0).then_some((per_second, requests))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_output_of_wrk() {
        let report = "  Latency  1.00ms\n  99000 requests in 1.01s, 9.10MB read\nRequests/sec:  98765.43\nTransfer/sec: 9.00MB\n";
        assert_eq!(rate(report), Some((98765.43, 99000.0)));
        assert_eq!(rate("unable to connect"), None);
    }
}
