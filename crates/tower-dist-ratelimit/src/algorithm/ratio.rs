/// A fixed fraction `num / den`, which multiplies numbers without a division per use.
///
/// `whole` and `part` approximate the fraction, and give a guess of the product. The remainder corrects the guess. So a
/// product is rounded once, and errors do not add up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    num: u64,
    den: u64,
    /// `floor(num / den)`.
    whole: u64,
    /// `floor(2^64 * (num % den) / den)`.
    part: u64,
}

/// Compares the values: 1/2 equals 2/4.
impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        let cross = |a: &Self, b: &Self| u128::from(a.num) * u128::from(b.den);
        cross(self, other) == cross(other, self)
    }
}

impl Ratio {
    /// The fraction `num / den`. Both are above 0, and `den` is at most 2⁶³.
    pub(super) fn new(num: u64, den: u64) -> Self {
        let part = (u128::from(num % den) << 64) / u128::from(den);
        Self {
            num,
            den,
            whole: num / den,
            part: u64::try_from(part).unwrap_or(u64::MAX),
        }
    }

    /// Returns `floor(x * num / den)`. The result must be below 2⁶⁴.
    #[inline]
    pub(super) fn floor(&self, x: u64) -> u64 {
        let guess = x.wrapping_mul(self.whole).wrapping_add(self.rest_of(x));
        guess.wrapping_add(u64::from(self.missing(x, guess) >= self.den))
    }

    /// Returns `ceil(x * num / den)`, or `u64::MAX` if that is larger.
    #[inline]
    pub(super) fn ceil(&self, x: u64) -> u64 {
        let whole = x.checked_mul(self.whole);
        let Some(guess) = whole.and_then(|whole| whole.checked_add(self.rest_of(x))) else {
            return u64::MAX;
        };
        let missing = self.missing(x, guess);
        let more = u64::from(missing > 0) + u64::from(missing > self.den);
        guess.saturating_add(more)
    }

    /// Returns `x` times the stored fractional part of the ratio, rounded down. The stored part is rounded down, too.
    #[inline]
    fn rest_of(&self, x: u64) -> u64 {
        let product = (u128::from(x) * u128::from(self.part)) >> 64;
        u64::try_from(product).unwrap_or(u64::MAX)
    }

    /// Returns `x * num - guess * den`. The guess is too low by less than 2, so the difference is below `2 * den` and
    /// fits into 64 bits. Therefore wrapping arithmetic gives the exact difference, without numbers of 128 bits.
    #[inline]
    fn missing(&self, x: u64, guess: u64) -> u64 {
        x.wrapping_mul(self.num)
            .wrapping_sub(guess.wrapping_mul(self.den))
    }
}

#[cfg(test)]
mod tests {
    use super::Ratio;
    use proptest::prelude::*;

    /// Numbers of every size, not only those near the maximum.
    fn any_size() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0_u32..64).prop_map(|(bits, shift)| (bits >> shift).max(1))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn the_reciprocal_divides_like_a_division(x in any_size(), num in any_size(), den in any_size()) {
            let den = den.min(1 << 63);
            let product = u128::from(x) * u128::from(num);
            let ratio = Ratio::new(num, den);
            if let Ok(floor) = u64::try_from(product / u128::from(den)) {
                prop_assert_eq!(ratio.floor(x), floor);
            }
            let ceil = product.div_ceil(u128::from(den));
            prop_assert_eq!(ratio.ceil(x), u64::try_from(ceil).unwrap_or(u64::MAX));
            prop_assert_eq!((ratio.floor(0), ratio.ceil(0)), (0, 0));
        }
    }
}
