#[cfg(feature = "redis")]
use std::sync::Mutex;

/// The key of a partition as it stands in a store: the first 128 bits of its BLAKE3, in hexadecimal.
///
/// The same on every machine, of one length whatever a client sends, and without braces: so nobody can choose the place
/// of another's key, or write into it.
pub(in crate::backend) type Tag = [u8; 32];

/// How many keys are remembered: a few that are asked about again and again.
#[cfg(feature = "redis")]
const PLACES: usize = 64;

/// The longest key that is remembered; those of requests are seldom longer.
#[cfg(feature = "redis")]
const LONGEST: usize = 128;

/// The tags of keys that were asked about lately. To see that a key is the same takes a fifth of the time that its hash
/// does, which on a hot key is one of the longest parts of a decision.
#[cfg(feature = "redis")]
pub(in crate::backend) struct Tags(Box<[Mutex<Known>]>);

/// A key, and its tag. Of none it is the empty key, which is hashed each time.
#[cfg(feature = "redis")]
#[derive(Clone)]
struct Known {
    len: usize,
    key: [u8; LONGEST],
    tag: Tag,
}

#[cfg(feature = "redis")]
impl Tags {
    pub(in crate::backend) fn new() -> Self {
        let none = || Known {
            len: 0,
            key: [0; LONGEST],
            tag: Tag::default(),
        };
        Self((0..PLACES).map(|_| Mutex::new(none())).collect())
    }

    pub(in crate::backend) fn of(&self, key: &[u8]) -> Tag {
        if key.is_empty() || key.len() > LONGEST {
            return tag(key);
        }
        // Whoever looks here at the same time is no slower without it.
        let Ok(mut known) = self.0[place(key)].try_lock() else {
            return tag(key);
        };
        if &known.key[..known.len] != key {
            known.tag = tag(key);
            known.key[..key.len()].copy_from_slice(key);
            known.len = key.len();
        }
        known.tag
    }
}

/// Where a key is remembered. Who knows how to make keys share a place gains nothing: they are hashed, like all others.
#[cfg(feature = "redis")]
fn place(key: &[u8]) -> usize {
    // Fibonacci hashing, of one word after the other.
    let mix =
        |bits: u64, word: u64| (bits.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (words, rest) = key.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let rest = rest.iter().map(|byte| u64::from(*byte));
    let bits = words.chain(rest).fold(0, mix);
    usize::try_from(bits >> 58).unwrap_or_default() % PLACES
}

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

    #[cfg(feature = "redis")]
    #[test]
    fn a_tag_is_the_same_however_often_and_after_whomever_it_is_asked_for() {
        let tags = Tags::new();
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
