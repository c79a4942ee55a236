use std::{fmt, sync::Mutex};

use siphasher::sip::SipHasher13;

/// A hash that stands for the caller's key in a store: the first 128 bits of the key's BLAKE3 hash, in hexadecimal.
///
/// The tag of a key is the same on every machine. All tags have the same length and contain no braces. So braces in a
/// client's key select no Redis Cluster slot, and a client cannot forge the store key of another client.
pub type Tag = [u8; 32];

/// Number of cache entries as an exponent of two: 2⁵ = 32 entries are enough for a few hot keys.
const PLACE_BITS: u32 = 5;

/// Longest key in the cache, in bytes. Keys of requests are seldom longer.
const LONGEST: usize = 128;

/// A cache of the [tags](Tag) of recent keys.
///
/// A look-up that finds a short key takes about a fifth of the time of hashing the key. The cache holds up to 32 keys
/// of at most 128 bytes.
///
/// ```
/// use tower_dist_ratelimit::backend::toolkit::{Tags, tag};
///
/// let tags = Tags::default();
/// assert_eq!(tags.of(b"client-42"), tag(b"client-42"));
/// assert_eq!(&tag(b""), b"af1349b9f5f9a1a6a0404dea36dcc949");
/// ```
#[derive(Default)]
pub struct Tags(Box<[Mutex<Known>; 1 << PLACE_BITS]>);

/// An entry of the cache: a key and its tag. An unused entry has the empty key, which is never looked up.
type Known = (Vec<u8>, Tag);

impl Tags {
    /// Returns the tag of a key.
    #[must_use]
    pub fn of(&self, key: &[u8]) -> Tag {
        if key.is_empty() || key.len() > LONGEST {
            return tag(key);
        }
        // If another thread uses this entry, hashes the key instead of waiting.
        let Ok(mut known) = self.0[place(key)].try_lock() else {
            return tag(key);
        };
        let (known_key, known_tag) = &mut *known;
        if known_key != key {
            *known_tag = tag(key);
            known_key.clear();
            known_key.extend_from_slice(key);
        }
        *known_tag
    }
}

/// Returns the index of a key's entry in the cache. Clients gain little by choosing keys with the same index: at worst,
/// each look-up hashes its key, as without a cache.
fn place(key: &[u8]) -> usize {
    let bits = SipHasher13::new().hash(key) >> (u64::BITS - PLACE_BITS);
    usize::try_from(bits).unwrap_or_default()
}

/// Returns the tag of a key: 128 bits of the key's BLAKE3 hash, in hexadecimal. [`Tags`] caches tags.
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

impl fmt::Debug for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tags").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_same_tag_in_any_order_of_look_ups() {
        let tags = Tags::default();
        let long = vec![b'x'; LONGEST + 1];
        let keys = (0..1000).map(|number| format!("client {number}").into_bytes());
        let others = [vec![], vec![0], vec![0; 2], vec![0; LONGEST], long];
        let keys: Vec<Vec<u8>> = keys.chain(others).collect();
        for key in keys.iter().chain(&keys).flat_map(|key| [key, key]) {
            assert_eq!(tags.of(key), tag(key), "{key:?}");
        }
    }

    #[test]
    fn a_tag_is_the_beginning_of_the_hash_in_hexadecimal() {
        // The published test vector of BLAKE3 for empty input.
        assert_eq!(&tag(b""), b"af1349b9f5f9a1a6a0404dea36dcc949");
    }
}
