//! Instructions per call, which other work on the machine does not affect.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fmt, io};

/// The number of counted calls.
const CALLS: u32 = 10_000;

/// Valgrind, and the path of this program.
#[derive(Debug)]
pub(crate) struct Callgrind {
    program: PathBuf,
}

impl Callgrind {
    /// Finds valgrind.
    ///
    /// # Errors
    ///
    /// Returns an error if valgrind does not start or the path of this program is unknown.
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

    /// Counts the calls alone, without setup such as the calibration of a clock.
    ///
    /// # Errors
    ///
    /// Returns an error if a run fails or reports no count.
    pub(crate) fn instructions(&self, case: &str, subject: &str) -> io::Result<u64> {
        let calls = CALLS.to_string();
        let job = ["--case", case, "--subject", subject, "--calls", &calls];
        let output = Command::new("valgrind")
            // Valgrind prints the sum to stderr; the profile itself is not needed.
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .args([
                "--collect-atstart=no",
                "--toggle-collect=*callgrind::counted*",
            ])
            .arg(&self.program)
            .args(job.map(OsStr::new))
            .stdin(Stdio::null())
            .output()?;
        let log = String::from_utf8_lossy(&output.stderr);
        let calls = u64::from(CALLS);
        collected(&log)
            .filter(|&count| output.status.success() && count > 0)
            .map(|count| (count + calls / 2) / calls)
            .ok_or_else(|| io::Error::other(format!("valgrind said:\n{log}")))
    }
}

/// The function whose instructions valgrind counts, found by its name.
#[inline(never)]
pub(crate) fn counted(work: impl FnOnce()) {
    work();
}

/// The number in `==1234== Collected : 56789`.
fn collected(log: &str) -> Option<u64> {
    let (_, count) = log.rsplit_once("Collected :")?;
    count.split_whitespace().next()?.parse().ok()
}

/// Prints the reason for missing counts to stderr.
pub(crate) fn missing(why: impl fmt::Display) {
    eprintln!("no instruction counts: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_read_from_the_output_of_valgrind() {
        let log = "==9== Events    : Ir\n==9== Collected : 1234567\n==9== \n";
        assert_eq!(collected(log), Some(1_234_567));
        assert_eq!(collected("==9== no such tool"), None);
    }
}
