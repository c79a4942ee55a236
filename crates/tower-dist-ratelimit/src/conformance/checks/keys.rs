use std::collections::BTreeSet;

use super::{Algorithm, Checked, Conformance, FROZEN, Subject};

/// The length of the longest keys.
const LONG: usize = 64 << 10;

/// Any bytes are a key, and no two keys are the same.
pub(in super::super) async fn keys(kit: &Conformance, algorithm: Algorithm) -> Checked {
    let subject = Subject::one(kit, "keys", algorithm, FROZEN, false)?;
    let keys = hostile();
    // These keys have no prefix, so a store may remember them from the last run.
    for key in &keys {
        subject.reset(key).await?;
    }
    let full = subject.look(&keys[0]).await?.remaining;
    for turn in 1..=2 {
        for key in &keys {
            let seen = subject.take(key, 1).await?;
            let start = String::from_utf8_lossy(&key[..key.len().min(16)]);
            let operation = format!("acquire {turn} of {start:?}, {} bytes", key.len());
            subject.allows(&operation, true, seen)?;
            subject.remains(operation, full - turn, seen)?;
        }
    }
    Ok(())
}

fn hostile() -> Vec<Vec<u8>> {
    let texts = [
        "", " ", "\0", "\0\0", "a", "A", "a\0", "a\0b", "ab", "a b", "a:b", "a::b", ":", "{", "}",
        "{}", "{a}", "{a}b", "a{b}", "}{", "{{a}}", "\r\n", "*", "?", "[a]", "\\", "\"", "'", "%s",
        "../a", "é", "e\u{301}", "日本", "0", "-1",
    ];
    let longer = ["a\r\nflush_all\r\n", "\u{feff}a", "\u{202e}a"];
    let texts = texts.iter().chain(&longer);
    let mut keys: Vec<Vec<u8>> = texts.map(|text| text.as_bytes().to_vec()).collect();
    keys.extend([vec![0xfe], vec![0xff], vec![0xff, 0xfe], vec![0x80; 300]]);
    keys.extend([250, 251, LONG].map(|len| vec![b'x'; len]));
    let mut other = vec![b'x'; LONG];
    other[LONG - 1] = b'y';
    keys.push(other);
    debug_assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    keys
}
