//! `grpc-timeout`: up to eight digits and a unit.

use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::http::{digits, trimmed};

pub(super) const FIELD: HeaderName = HeaderName::from_static("grpc-timeout");

const MAX_DIGITS: usize = 8;
const MAX_VALUE: u128 = 99_999_999;

/// The letter and the nanoseconds of each unit, in ascending order.
const UNITS: [(u8, u64); 6] = [
    (b'n', 1),
    (b'u', 1_000),
    (b'm', 1_000_000),
    (b'S', 1_000_000_000),
    (b'M', 60_000_000_000),
    (b'H', 3_600_000_000_000),
];

/// Parses a `grpc-timeout`. A malformed value is no timeout.
pub(super) fn parse(value: &HeaderValue) -> Option<Duration> {
    let (letter, count) = trimmed(value).split_last()?;
    let (_, nanos) = UNITS.iter().find(|(unit, _)| unit == letter)?;
    let count = digits(count).filter(|count| count.len() <= MAX_DIGITS)?;
    // At most 99,999,999 hours, which is 3.6·10²⁰ ns. That fits a `Duration`, but not 64 bits of nanoseconds.
    Some(Duration::from_nanos(*nanos).saturating_mul(count.parse().ok()?))
}

/// Formats the remaining time in the smallest unit in which it has at most 8 digits.
///
/// The value is rounded down, so that the server's timeout is not longer than the caller's. If no time remains, the
/// value is the shortest timeout, 1 ns.
pub(super) fn value(left: Duration) -> HeaderValue {
    let nanos = left.as_nanos().max(1);
    let fits = |(_, unit): &&(u8, u64)| nanos / u128::from(*unit) <= MAX_VALUE;
    // `Duration::MAX` exceeds the range even in hours.
    let (letter, unit) = UNITS.iter().find(fits).unwrap_or(&UNITS[5]);
    let count = (nanos / u128::from(*unit)).min(MAX_VALUE);
    let text = format!("{count}{}", char::from(*letter));
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("1n"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(value: &[u8]) -> Option<Duration> {
        parse(&HeaderValue::from_bytes(value).ok()?)
    }

    #[test]
    fn every_unit_is_known() {
        for (value, expected) in [
            ("1n", Duration::from_nanos(1)),
            ("2u", Duration::from_micros(2)),
            ("3m", Duration::from_millis(3)),
            (" 3m\t", Duration::from_millis(3)),
            ("00000004S", Duration::from_secs(4)),
            ("5M", Duration::from_secs(300)),
            ("99999999H", Duration::from_secs(99_999_999 * 3600)),
        ] {
            assert_eq!(parsed(value.as_bytes()), Some(expected), "{value}");
        }
    }

    #[test]
    fn a_malformed_value_is_no_timeout() {
        for value in [
            "",
            "S",
            "5",
            "5s",
            "123456789S",
            "-1S",
            "1.5S",
            "1 S",
            "0x1S",
        ] {
            assert_eq!(parsed(value.as_bytes()), None, "{value:?}");
        }
    }

    #[test]
    fn a_value_is_in_the_smallest_unit_that_has_room() {
        for (left, expected) in [
            (Duration::ZERO, "1n"),
            (Duration::from_nanos(99_999_999), "99999999n"),
            (Duration::from_nanos(100_000_999), "100000u"),
            (Duration::from_secs(60), "60000000u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::MAX, "99999999H"),
        ] {
            assert_eq!(value(left), expected, "{left:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_timeout_or_none(value in any::<Vec<u8>>()) {
            if let Some(timeout) = parsed(&value) {
                prop_assert!(timeout <= Duration::from_secs(99_999_999 * 3600));
            }
        }

        #[test]
        fn a_written_timeout_never_exceeds_the_remaining_time(nanos in 1..=u64::MAX) {
            let left = Duration::from_nanos(nanos);
            let written = parse(&value(left)).unwrap();
            prop_assert!(written <= left);
            // If a smaller unit had no room, the count is at least 99,999.
            prop_assert!(left - written <= left / 99_999 || nanos <= 99_999_999);
        }
    }
}
