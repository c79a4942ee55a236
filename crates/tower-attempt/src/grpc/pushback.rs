use std::time::Duration;

use http::{HeaderMap, HeaderName};

use crate::Hint;
use crate::http::{digits, trimmed};

const FIELD: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Parses the server's pushback, in milliseconds. "If the value for pushback is negative or unparseable, then it will
/// be seen as the server asking the client not to retry at all" (gRFC A6).
pub(super) fn parse(fields: &HeaderMap) -> Option<Hint> {
    let millis = digits(trimmed(fields.get(FIELD)?));
    Some(match millis.and_then(|millis| millis.parse().ok()) {
        Some(millis) => Hint::Exactly(Duration::from_millis(millis)),
        None => Hint::Never,
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn parsed(value: &[u8]) -> Option<Hint> {
        let value = HeaderValue::from_bytes(value).ok()?;
        parse(&HeaderMap::from_iter([(FIELD, value)]))
    }

    #[test]
    fn a_number_is_an_exact_delay() {
        let exactly = |millis| Some(Hint::Exactly(Duration::from_millis(millis)));
        assert_eq!(parsed(b"0"), exactly(0));
        assert_eq!(parsed(b"1500"), exactly(1500));
        assert_eq!(parsed(b" 1500\t"), exactly(1500));
        assert_eq!(parsed(b"18446744073709551615"), exactly(u64::MAX));
        assert_eq!(parse(&HeaderMap::new()), None);
    }

    #[test]
    fn a_negative_or_malformed_value_forbids_a_retry() {
        for value in [
            "-1",
            "",
            "+5",
            "1.5",
            " ",
            "1 2",
            "1e3",
            "18446744073709551616",
            "soon",
        ] {
            assert_eq!(parsed(value.as_bytes()), Some(Hint::Never), "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_delay_or_forbid_a_retry(value in any::<Vec<u8>>()) {
            if let Some(hint) = parsed(&value) {
                let value = value.trim_ascii();
                let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
                prop_assert!(matches!(hint, Hint::Never) || digits);
            }
        }
    }
}
