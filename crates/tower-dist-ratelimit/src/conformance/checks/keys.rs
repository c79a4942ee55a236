use std::collections::BTreeSet;

use super::{Conformance, Subject, Violation, found};
use crate::Algorithm;

/// The length of the longest keys.
const LONG: usize = 64 << 10;

/// Any bytes are a key, and no two keys are the same.
pub(in super::super) async fn keys(
    kit: &Conformance,
    algorithm: Algorithm,
) -> Result<(), Violation> {
    let subject = Subject::frozen(kit, "keys", algorithm)?;
    let keys = hostile();
    // The empty key has no prefix to tell it from the last run's.
    for key in &keys {
        subject.reset(key).await?;
    }
    let full = subject.look(&keys[0]).await?.remaining;
    for turn in 1..=2 {
        for key in &keys {
            let seen = subject.take(key, 1).await?;
            let own = seen.allowed && seen.remaining == full - turn;
            subject.promise(own, || {
                let start = String::from_utf8_lossy(&key[..key.len().min(16)]);
                let operation = format!("acquire {turn} of {start:?}, {} bytes", key.len());
                found(operation, "remaining", full - turn, seen)
            })?;
        }
    }
    Ok(())
}

fn hostile() -> Vec<Vec<u8>> {
    let texts = [
        "",
        " ",
        "\0",
        "\0\0",
        "a",
        "A",
        "a\0",
        "a\0b",
        "ab",
        "a b",
        "a:b",
        "a::b",
        ":",
        "{",
        "}",
        "{}",
        "{a}",
        "{a}b",
        "a{b}",
        "}{",
        "{{a}}",
        "\r\n",
        "a\r\nflush_all\r\n",
        "*",
        "?",
        "[a]",
        "\\",
        "\"",
        "'",
        "%s",
        "../a",
        "é",
        "e\u{301}",
        "日本",
        "\u{feff}a",
        "\u{202e}a",
        "0",
        "-1",
    ];
    let mut keys: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    keys.extend([
        vec![0xfe],
        vec![0xff],
        vec![0xff, 0xfe],
        vec![0x80; 300],
        vec![b'x'; 250],
        vec![b'x'; 251],
    ]);
    for last in [b'x', b'y'] {
        let mut long = vec![b'x'; LONG];
        long[LONG - 1] = last;
        keys.push(long);
    }
    debug_assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    keys
}
