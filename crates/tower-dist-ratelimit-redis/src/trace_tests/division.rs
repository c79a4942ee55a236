//! The scripts' division of a product that a double cannot hold.

use proptest::prelude::*;

use super::{lab::Lab, runner};
use crate::{
    rate::MOST_USED,
    source::{COMMON, fill},
};

/// The largest integer below 2⁵³.
const MOST: u64 = (1 << 53) - 1;

/// A number of any length in bits, or one of the largest.
fn number() -> impl Strategy<Value = u64> {
    let of_bits = (0_u32..=52, any::<u64>()).prop_map(|(bits, any)| any % (1 << bits) + 1);
    prop_oneof![of_bits, MOST_USED - 1000..=MOST_USED]
}

#[test]
fn products_of_the_largest_quotas_are_divided_exactly() {
    let lab = Lab::new();
    let numbers = [("FURTHEST", 0), ("SLACK", 0), ("MOST", MOST)];
    let muldiv = "return { muldiv(tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])) }";
    let lua = fill(COMMON, &numbers) + muldiv;
    let divide = |a: u64, b: u64, c: u64| {
        let arguments = [a, b, c].map(|number| number.to_string());
        let [a, b, c] = arguments.each_ref().map(String::as_str);
        lab.eval(&[&lua, "0", a, b, c])
    };
    // A sliding window of a century: five tokens, one microsecond after the beginning of its sub-window.
    let century = 3_155_760_000_000_000;
    assert_eq!(divide(5, century - 1, century), [4, 3_155_759_999_999_995]);
    // The quotient is at most the smaller factor or the smaller divisor, as in the scripts.
    let three = (number(), number(), number());
    let three = three.prop_map(|(a, b, c)| if b <= c { (a, b, c) } else { (a.min(c), b, c) });
    runner(3000)
        .run(&three, |(a, b, c)| {
            let product = u128::from(a) * u128::from(b);
            let exact = [product / u128::from(c), product % u128::from(c)];
            let exact = exact.map(|number| i64::try_from(number).unwrap());
            prop_assert_eq!(divide(a, b, c), exact, "{} * {} / {}", a, b, c);
            Ok(())
        })
        .unwrap();
}
