use std::time::Duration;

use http::{HeaderMap, header};

/// `Retry-After` in seconds (RFC 9110 §10.2.3). What is not a plain decimal number is no hint; one
/// too large for 64 bits is the largest there is.
pub(super) fn parse(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.as_bytes();
    if value.is_empty() {
        return None;
    }
    let mut seconds = 0_u64;
    for &byte in value {
        if !byte.is_ascii_digit() {
            return None;
        }
        let digit = u64::from(byte - b'0');
        seconds = seconds.saturating_mul(10).saturating_add(digit);
    }
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn parsed(value: &[u8]) -> Option<Duration> {
        let value = HeaderValue::from_bytes(value).ok()?;
        parse(&HeaderMap::from_iter([(header::RETRY_AFTER, value)]))
    }

    #[test]
    fn only_plain_decimal_seconds_are_a_hint() {
        for (value, seconds) in [
            ("0", Some(0)),
            ("1", Some(1)),
            ("007", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", Some(u64::MAX)),
            ("99999999999999999999999999999999", Some(u64::MAX)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("1 2", None),
            ("1s", None),
            ("0x10", None),
            ("soon", None),
        ] {
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(parsed(value.as_bytes()), expected, "{value:?}");
        }
        assert_eq!(parse(&HeaderMap::new()), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(value in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(hint) = parsed(&value) {
                prop_assert!(value.iter().all(u8::is_ascii_digit));
                prop_assert_eq!(hint.subsec_nanos(), 0);
            }
        }

        #[test]
        fn every_u64_is_read_back(seconds: u64) {
            prop_assert_eq!(parsed(seconds.to_string().as_bytes()), Some(Duration::from_secs(seconds)));
        }
    }
}
