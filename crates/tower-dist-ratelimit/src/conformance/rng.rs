/// Reproducible random numbers (SplitMix64; Steele, Lea and Flood 2014), without a dependency.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    /// The sequence of numbers depends on the seed and on the name of the check.
    pub(super) fn new(seed: u64, check: &str) -> Self {
        let mix = |sum: u64, byte: u8| sum.wrapping_mul(31).wrapping_add(byte.into());
        Self(check.bytes().fold(seed, mix))
    }

    /// Returns a number in `0..=most`. `most` is below `u64::MAX`.
    pub(super) fn up_to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % (most + 1)
    }
}
