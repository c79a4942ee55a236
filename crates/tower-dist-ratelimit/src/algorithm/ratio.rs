/// A fixed fraction `num / den` to multiply by: exactly, and without a division per use.
///
/// A precomputed reciprocal gives a guess that is never high and at most a few too low; the remainder corrects it.
/// So what is rounded is rounded once, and errors do not add up however long a limiter runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    num: u64,
    den: u64,
    /// `floor(num / den * 2^shift)`, with the largest `shift` up to 64 at which it fits.
    reciprocal: u64,
    shift: u32,
}

impl Ratio {
    /// `num / den`; neither may be zero.
    pub(super) fn new(num: u64, den: u64) -> Self {
        let (shift, reciprocal) = (0..=64)
            .rev()
            .find_map(|shift| {
                let scaled = (u128::from(num) << shift) / u128::from(den);
                Some((shift, u64::try_from(scaled).ok()?))
            })
            .unwrap_or((0, u64::MAX));
        Self {
            num,
            den,
            reciprocal,
            shift,
        }
    }

    /// `floor(x * num / den)`, at most `u64::MAX`.
    pub(super) fn floor(&self, x: u64) -> u64 {
        self.divide(x).0
    }

    /// `ceil(x * num / den)`, at most `u64::MAX`.
    pub(super) fn ceil(&self, x: u64) -> u64 {
        let (quotient, exact) = self.divide(x);
        quotient.saturating_add(u64::from(!exact))
    }

    fn divide(&self, x: u64) -> (u64, bool) {
        let guess = (u128::from(x) * u128::from(self.reciprocal)) >> self.shift;
        let mut quotient = u64::try_from(guess).unwrap_or(u64::MAX);
        let den = u128::from(self.den);
        let mut rest = u128::from(x) * u128::from(self.num) - u128::from(quotient) * den;
        // Low by less than x / 2^shift. That is below 2 where the quotient fits at all, so this turns at most twice.
        while rest >= den && quotient < u64::MAX {
            quotient += 1;
            rest -= den;
        }
        (quotient, rest == 0)
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
            let product = u128::from(x) * u128::from(num);
            let saturated = |q: u128| u64::try_from(q).unwrap_or(u64::MAX);
            let ratio = Ratio::new(num, den);
            prop_assert_eq!(ratio.floor(x), saturated(product / u128::from(den)));
            prop_assert_eq!(ratio.ceil(x), saturated(product.div_ceil(u128::from(den))));
            prop_assert_eq!(ratio.floor(0), 0);
        }
    }
}
