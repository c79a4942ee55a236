use std::io;
use std::process::{Command, Stdio};

use super::server::CORES;

/// The load generator.
pub(super) struct Wrk(());

impl Wrk {
    /// # Errors
    ///
    /// Returns an error if `wrk` or `taskset` does not start.
    pub(super) fn find() -> io::Result<Self> {
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
    pub(super) fn per_second(&self, port: u16, path: &str) -> io::Result<f64> {
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
