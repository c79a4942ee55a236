use siphasher::sip::SipHasher13;

use crate::{algorithm::Now, key::KeyBytes};

/// A 64-bit hash, kept instead of the key. It is never 0, which marks an unused slot, nor [`RESERVED`](Self::RESERVED).
///
/// Two keys share a fingerprint, and so a state, with probability 2⁻⁶⁴. The hash has a secret seed, so an attacker
/// cannot find such keys. With 100,000 keys, one process in 3.7 billion has two keys that share a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    /// Marks a slot that is being given to another key.
    pub(super) const RESERVED: u64 = 1;

    #[inline]
    pub(super) fn of(key: KeyBytes<'_>, hasher: &SipHasher13) -> Self {
        // The complement keeps the two forms of keys apart, even if their bytes are equal.
        let bits = match key {
            KeyBytes::Part(bytes) => hasher.hash(bytes),
            KeyBytes::Other(bytes) => !hasher.hash(bytes),
        };
        Self(bits.max(Self::RESERVED + 1))
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// Returns this time, for this key.
    #[inline]
    pub(super) fn at(self, nanos: u64) -> Now {
        let Self(key) = self;
        Now { nanos, key }
    }

    /// Returns two places among `len`, each from its own half of the bits (multiply and shift, no division).
    pub(super) fn places(self, len: usize) -> [usize; 2] {
        [self.0 & u64::from(u32::MAX), self.0 >> 32].map(|half| scale(half, len))
    }

    /// Returns the first, second or third of the key's places among `len`, for a `choice` of 0, 1 or 2.
    #[inline]
    pub(super) fn place(self, choice: usize, len: usize) -> usize {
        match choice {
            0 | 1 => self.places(len)[choice],
            _ => self.spread(choice, len),
        }
    }

    /// Returns a place among `len`. Different salts usually give different places.
    pub(super) fn spread(self, salt: usize, len: usize) -> usize {
        // 2⁶⁴ divided by the golden ratio, which spreads consecutive salts (Knuth, volume 3, 6.4).
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        let salted = self.0 ^ (salt as u64 + 1).wrapping_mul(GOLDEN);
        // Multiplied again, so that the result is nearly independent of the two places that `Self::places` returns.
        scale(salted.wrapping_mul(GOLDEN) >> 32, len)
    }
}

/// Maps 32 bits to `0..len`.
fn scale(bits: u64, len: usize) -> usize {
    usize::try_from((u128::from(bits) * len as u128) >> 32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_and_a_key_of_several_parts_with_the_same_bytes_are_different_keys() {
        let hasher = SipHasher13::new_with_keys(0, 0);
        let of = |key| Fingerprint::of(key, &hasher);
        assert_ne!(of(KeyBytes::Part(b"key")), of(KeyBytes::Other(b"key")));
        assert_ne!(of(KeyBytes::Part(b"key")), of(KeyBytes::Part(b"yek")));
    }
}
