use std::{collections::hash_map::RandomState, hash::BuildHasher};

use siphasher::sip::SipHasher13;

/// A key's 64-bit hash, which stands for the key. Never 0, which is in slots that nobody has used, nor [`RESERVED`](Self::RESERVED).
///
/// Two keys share a fingerprint, and so a bucket, with probability 2⁻⁶⁴; nobody outside can find such keys, because the
/// hash is keyed. Among 100,000 keys there are two that do once in 3.7 billion processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    /// In a slot that is changing hands.
    pub(super) const RESERVED: u64 = 1;

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// Two places among `len`, each from its own half of the bits (multiply and shift, no division).
    pub(super) fn places(self, len: usize) -> [usize; 2] {
        [self.0 & u64::from(u32::MAX), self.0 >> 32].map(|half| scale(half, len))
    }

    /// The first, second or third place among `len`.
    #[inline]
    pub(super) fn place(self, choice: usize, len: usize) -> usize {
        match choice {
            0 | 1 => self.places(len)[choice],
            _ => self.spread(choice, len),
        }
    }

    /// One place among `len`, another for each `salt`.
    pub(super) fn spread(self, salt: usize, len: usize) -> usize {
        // 2⁶⁴ divided by the golden ratio: consecutive salts go far apart (Knuth, volume 3, 6.4).
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        let salted = self.0 ^ (salt as u64 + 1).wrapping_mul(GOLDEN);
        // Once more, so that the place says nothing about the two `places`.
        scale(salted.wrapping_mul(GOLDEN) >> 32, len)
    }
}

/// Maps 32 bits to `0..len`.
fn scale(bits: u64, len: usize) -> usize {
    usize::try_from((u128::from(bits) * len as u128) >> 32).unwrap_or(0)
}

/// Hashes keys under a random key of its own.
#[derive(Clone, Copy)]
pub(super) struct Hasher(SipHasher13);

impl Hasher {
    /// The random bits come from where the standard library's hash maps take theirs.
    pub(super) fn random() -> Self {
        let random = RandomState::new();
        Self(SipHasher13::new_with_keys(
            random.hash_one(0),
            random.hash_one(1),
        ))
    }

    /// The same in every run.
    #[cfg(test)]
    pub(super) fn fixed() -> Self {
        Self(SipHasher13::new_with_keys(0, 0))
    }

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> Fingerprint {
        Fingerprint(self.0.hash(key).max(Fingerprint::RESERVED + 1))
    }
}
