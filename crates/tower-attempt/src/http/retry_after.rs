use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};

use super::{digits, trimmed};

/// Parses `Retry-After` (RFC 9110 §10.2.3): plain decimal seconds, or a date in one of HTTP's three formats. Any other
/// value is no hint.
pub(super) fn parse(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?;
    seconds(trimmed(value)).or_else(|| wait_until(value, headers))
}

/// Parses a number of seconds. A number beyond 64 bits counts as `u64::MAX`.
fn seconds(value: &[u8]) -> Option<Duration> {
    let seconds = digits(value)?.parse().unwrap_or(u64::MAX);
    Some(Duration::from_secs(seconds))
}

/// Returns the time until a date. A date in the past means no wait.
///
/// Counts from the response's own `Date`, so that differing clocks do not matter. Without a valid `Date`, counts from
/// the system clock.
#[expect(
    clippy::disallowed_types,
    reason = "a date is wall-clock time, and this is the one place that compares it with the clock"
)]
fn wait_until(value: &HeaderValue, headers: &HeaderMap) -> Option<Duration> {
    let until = date(value)?;
    let now = headers.get(header::DATE).and_then(date);
    let now = now.unwrap_or_else(std::time::SystemTime::now);
    Some(until.duration_since(now).unwrap_or_default())
}

#[expect(clippy::disallowed_types, reason = "the type of a date in `httpdate`")]
fn date(value: &HeaderValue) -> Option<std::time::SystemTime> {
    httpdate::parse_http_date(str::from_utf8(trimmed(value)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(retry_after: &[u8], date: Option<&str>) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::RETRY_AFTER,
            HeaderValue::from_bytes(retry_after).ok()?,
        );
        if let Some(date) = date {
            headers.insert(header::DATE, date.parse().ok()?);
        }
        Some(headers)
    }

    fn parsed(value: &[u8]) -> Option<Duration> {
        // Later than all dates in these tests.
        parse(&headers(value, Some("Tue, 31 Dec 2999 23:59:59 GMT"))?)
    }

    #[test]
    fn only_plain_decimal_seconds_and_dates_are_a_hint() {
        for (value, seconds) in [
            ("0", Some(0)),
            ("1", Some(1)),
            ("007", Some(7)),
            ("  7 ", Some(7)),
            ("\t7\t", Some(7)),
            (" ", None),
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
            ("Sun, 06 Nov 1994 08:49:37 CET", None),
            ("Sun, 06 Nov 1994", None),
            ("1994-11-06T08:49:37Z", None),
        ] {
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(parsed(value.as_bytes()), expected, "{value:?}");
        }
        assert_eq!(parse(&HeaderMap::new()), None);
    }

    #[test]
    fn all_three_forms_of_a_date_count_from_the_responses_own_date() {
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            " Sun, 06 Nov 1994 08:49:37 GMT\t",
        ] {
            for (now, seconds) in [
                ("Sun, 06 Nov 1994 08:49:30 GMT", 7),
                ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
                ("Sun, 06 Nov 1994 08:49:38 GMT", 0),
                ("Sun Nov  6 08:49:35 1994", 2),
                (" Sun, 06 Nov 1994 08:49:30 GMT ", 7),
            ] {
                let headers = headers(date.as_bytes(), Some(now)).unwrap();
                let expected = Some(Duration::from_secs(seconds));
                assert_eq!(parse(&headers), expected, "{date} at {now}");
            }
        }
    }

    #[test]
    fn without_a_date_the_systems_clock_counts() {
        for now in [None, Some("yesterday")] {
            let past = headers(b"Sun, 06 Nov 1994 08:49:37 GMT", now).unwrap();
            assert_eq!(parse(&past), Some(Duration::ZERO));
            let future = headers(b"Tue, 31 Dec 2999 23:59:59 GMT", now).unwrap();
            assert!(parse(&future).unwrap() > Duration::from_secs(365 * 24 * 3600));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(value in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(hint) = parsed(&value) {
                prop_assert_eq!(hint.subsec_nanos(), 0);
            }
        }

        #[test]
        fn a_value_that_resembles_a_date_never_panics(
            value in "(Sun|Sunday|Mon)[, ]{1,2}[0-9]{1,2}[ -](Nov|Feb)[ -][0-9]{2,5} [0-9:]{5,8}( GMT)?",
        ) {
            let _ = parsed(value.as_bytes());
        }

        #[test]
        fn every_u64_is_read_back(seconds: u64) {
            prop_assert_eq!(parsed(seconds.to_string().as_bytes()), Some(Duration::from_secs(seconds)));
        }
    }
}
