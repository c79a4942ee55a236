/// A hash that stands for the caller's key in a store: the first 128 bits of the key's BLAKE3 hash, in hexadecimal.
///
/// The tag of a key is the same on every machine. All tags have the same length and contain no braces. So braces in a
/// client's key select no Redis Cluster slot, and a client cannot forge the store key of another client.
pub type Tag = [u8; 32];

/// Returns the tag of a key: 128 bits of the key's BLAKE3 hash, in hexadecimal.
///
/// ```
/// use tower_dist_ratelimit::backend::toolkit::tag;
///
/// assert_eq!(&tag(b""), b"af1349b9f5f9a1a6a0404dea36dcc949");
/// ```
#[must_use]
pub fn tag(key: &[u8]) -> Tag {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let hash = blake3::hash(key);
    let mut tag = [0; 32];
    for (pair, byte) in tag.chunks_exact_mut(2).zip(hash.as_bytes()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    tag
}

/// Returns the first 64 bits of the hash that a tag contains, as a number. The number is the same on every machine.
///
/// ```
/// use tower_dist_ratelimit::backend::toolkit::{tag, tag_bits};
///
/// assert_eq!(tag_bits(&tag(b"")), 0xaf13_49b9_f5f9_a1a6);
/// ```
#[must_use]
pub fn tag_bits(tag: &Tag) -> u64 {
    let digits = std::str::from_utf8(&tag[..16]).unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_the_beginning_of_the_hash_in_hexadecimal() {
        // The published test vector of BLAKE3 for empty input.
        assert_eq!(&tag(b""), b"af1349b9f5f9a1a6a0404dea36dcc949");
    }
}
