//! The program's report of memory per key, from processes that do nothing else.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::process::{Command, Stdio};

/// The increase of a process's resident bytes after `keys` keys.
fn weighed(keys: u32) -> u64 {
    let output = Command::new(env!("CARGO_BIN_EXE_benches"))
        .args(["--case", "resident bytes per String key"])
        .args(["--subject", "governor", "--weigh"])
        .args(["--calls", &keys.to_string()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .split_whitespace()
        .next()
        .expect("the bytes come first")
        .parse()
        .unwrap()
}

/// Tables grow by doubling: four times the keys take about four times the memory.
#[test]
#[cfg(target_os = "linux")]
fn resident_memory_grows_with_the_keys_that_are_kept() {
    let (few, many) = (weighed(50_000), weighed(200_000));
    assert!(few > 50_000 * 40, "{few}");
    assert!((few * 3..few * 5).contains(&many), "{few} {many}");
}
