//! Memory per key, as the operating system reports it for a process that does nothing else.

use std::process::{Command, Stdio};
use std::{env, fs, io};

/// The memory and time of a number of keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Resident bytes.
    pub(crate) bytes_per_key: f64,
    pub(crate) nanos_per_key: f64,
}

/// Measures the memory per key of this number of keys.
///
/// # Errors
///
/// Returns an error if the process does not start or fails, or if the operating system reports no numbers.
pub(crate) fn per_key(case: &str, subject: &str, keys: u32) -> io::Result<Taken> {
    let mut filling = Command::new(env::current_exe()?);
    filling.args(["--case", case, "--subject", subject, "--weigh"]);
    filling
        .args(["--calls", &keys.to_string()])
        .stdin(Stdio::null());
    let output = filling.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(bytes)), Some(Ok(nanos))) if bytes > 0.0 => Ok(Taken {
            bytes_per_key: bytes / f64::from(keys),
            nanos_per_key: nanos / f64::from(keys),
        }),
        _ => Err(io::Error::other("the system does not say what is resident")),
    }
}

/// The increase of this process's resident bytes during `fill`.
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
