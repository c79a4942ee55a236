//! How much memory keys take, by what the system says of a process that does nothing else.

use std::process::{Command, Stdio};
use std::{env, fs, io};

/// As many as a busy service has.
const KEYS: u32 = 1_000_000;

/// What a key takes, in bytes, when there are a million.
///
/// # Errors
///
/// When the process can't be started, or the system does not say.
pub(crate) fn per_key(case: &str, subject: &str) -> io::Result<f64> {
    let mut filling = Command::new(env::current_exe()?);
    filling.args(["--case", case, "--subject", subject, "--weigh"]);
    filling
        .args(["--calls", &KEYS.to_string()])
        .stdin(Stdio::null());
    let output = filling.output()?;
    let bytes = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse::<f64>();
    match bytes {
        Ok(bytes) if bytes > 0.0 => Ok(bytes / f64::from(KEYS)),
        _ => Err(io::Error::other("the system does not say what is resident")),
    }
}

/// How many bytes more of this process are resident after `fill` than before.
pub(crate) fn growth(fill: impl FnOnce()) -> u64 {
    let before = bytes();
    fill();
    bytes()
        .zip(before)
        .map_or(0, |(after, before)| after.saturating_sub(before))
}

fn bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
