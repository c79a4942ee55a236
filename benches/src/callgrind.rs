//! Instructions per call: the one figure that a busy machine does not blur.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fmt, io};

use crate::measure::Case;

/// Calls in the shorter of the two runs.
const CALLS: u32 = 10_000;

/// Valgrind, and this program for it to run.
#[derive(Debug)]
pub(crate) struct Callgrind {
    program: PathBuf,
}

/// What a run under valgrind does: one subject's work, and nothing else.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Job {
    /// For runs of itself under valgrind: the case.
    #[arg(long, hide = true, requires_all = ["subject", "calls"])]
    pub(crate) case: Option<String>,
    /// The subject.
    #[arg(long, hide = true)]
    pub(crate) subject: Option<String>,
    /// How many calls.
    #[arg(long, hide = true)]
    pub(crate) calls: Option<u32>,
}

impl Job {
    /// Does the work, if there is any to do.
    pub(crate) fn run(&self, cases: &mut [Case]) -> bool {
        let (Some(name), Some(subject), Some(calls)) = (&self.case, &self.subject, self.calls)
        else {
            return false;
        };
        let case = cases.iter_mut().find(|case| case.name == name.as_str());
        let subjects = case.into_iter().flat_map(|case| &mut case.subjects);
        for found in subjects.filter(|found| found.name == subject.as_str()) {
            found.run(calls);
        }
        true
    }
}

impl Callgrind {
    /// Whether valgrind is installed.
    ///
    /// # Errors
    ///
    /// When it can't be started, or does not know where this program is.
    pub(crate) fn find() -> io::Result<Self> {
        let mut version = Command::new("valgrind");
        version.arg("--version").stdout(Stdio::null());
        match version.status()?.success() {
            true => Ok(Self {
                program: env::current_exe()?,
            }),
            false => Err(io::Error::other("`valgrind --version` failed")),
        }
    }

    /// The difference between a run and one of twice as many calls, so that everything before and
    /// after the calls falls out.
    ///
    /// # Errors
    ///
    /// When a run fails, or reports no count.
    pub(crate) fn instructions(&self, case: &str, subject: &str) -> io::Result<u64> {
        let once = self.count(case, subject, CALLS)?;
        let twice = self.count(case, subject, 2 * CALLS)?;
        let calls = u64::from(CALLS);
        Ok((twice.saturating_sub(once) + calls / 2) / calls)
    }

    fn count(&self, case: &str, subject: &str, calls: u32) -> io::Result<u64> {
        let calls = calls.to_string();
        let job = ["--case", case, "--subject", subject, "--calls", &calls];
        let output = Command::new("valgrind")
            // The sum goes to stderr; the profile itself is not needed.
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(&self.program)
            .args(job.map(OsStr::new))
            .stdin(Stdio::null())
            .output()?;
        let log = String::from_utf8_lossy(&output.stderr);
        collected(&log)
            .filter(|_| output.status.success())
            .ok_or_else(|| io::Error::other(format!("valgrind said:\n{log}")))
    }
}

/// The number in `==1234== Collected : 56789`.
fn collected(log: &str) -> Option<u64> {
    let (_, count) = log.rsplit_once("Collected :")?;
    count.split_whitespace().next()?.parse().ok()
}

/// Says on stderr why there is no count.
pub(crate) fn missing(why: impl fmt::Display) {
    eprintln!("no instruction counts: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_found_in_what_valgrind_says() {
        let log = "==9== Events    : Ir\n==9== Collected : 1234567\n==9== \n";
        assert_eq!(collected(log), Some(1_234_567));
        assert_eq!(collected("==9== no such tool"), None);
    }
}
