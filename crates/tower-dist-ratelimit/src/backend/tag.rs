/// The key of a partition as it stands in a store: the first 128 bits of its BLAKE3, in hexadecimal.
///
/// The same on every machine, of one length whatever a client sends, and without braces: so nobody can choose the place
/// of another's key, or write into it.
pub(in crate::backend) type Tag = [u8; 32];

/// Hashes a partition's key.
pub(in crate::backend) fn tag(key: &[u8]) -> Tag {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let hash = blake3::hash(key);
    let mut tag = [0; 32];
    for (pair, byte) in tag.chunks_exact_mut(2).zip(hash.as_bytes()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    tag
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
