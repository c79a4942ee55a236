//! Instructions per call: the one figure that a busy machine does not blur.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fmt, io};

/// Calls that are counted.
const CALLS: u32 = 10_000;

/// Valgrind, and this program for it to run.
#[derive(Debug)]
pub(crate) struct Callgrind {
    program: PathBuf,
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

    /// Of the calls alone: what comes before and after them, such as a clock that calibrates itself, is not counted.
    ///
    /// # Errors
    ///
    /// When a run fails, or reports no count.
    pub(crate) fn instructions(&self, case: &str, subject: &str) -> io::Result<u64> {
        let calls = CALLS.to_string();
        let job = ["--case", case, "--subject", subject, "--calls", &calls];
        let output = Command::new("valgrind")
            // The sum goes to stderr; the profile itself is not needed.
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

/// What is counted under valgrind, which finds it by its name.
#[inline(never)]
pub(crate) fn counted(work: impl FnOnce()) {
    work();
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
