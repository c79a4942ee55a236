use std::time::Duration;

use http::HeaderMap;

/// The name of the field `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11.
const RATELIMIT: &str = "ratelimit";

/// Returns the longest wait (`t`, in seconds) among the policies without remaining quota (`r=0`).
///
/// The field is a list of structured field items (RFC 9651): policy names with parameters. If this function cannot
/// parse the field, it ignores the whole field, as that RFC requires. With some malformed numbers, such as `r=--0`,
/// only that parameter counts as missing.
pub(super) fn parse(headers: &HeaderMap) -> Option<Duration> {
    let mut longest = None;
    for line in headers.get_all(RATELIMIT) {
        let mut rest = Text(line.to_str().ok()?);
        rest.skip_spaces();
        loop {
            let (remaining, wait) = rest.member()?;
            if remaining == Some(0) {
                longest = longest.max(wait);
            }
            rest.skip_spaces();
            if rest.0.is_empty() {
                break;
            }
            rest.take(',')?;
            rest.skip_spaces();
        }
    }
    longest.map(Duration::from_secs)
}

/// The text of a field line that is not parsed yet.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    /// Parses the name of a policy and its parameters. Returns the values of `r` and `t`.
    fn member(&mut self) -> Option<(Option<u64>, Option<u64>)> {
        self.value()?;
        let (mut remaining, mut wait) = (None, None);
        while self.take(';').is_some() {
            self.skip_spaces();
            let key = self.token()?;
            // A parameter without a value is a boolean.
            let value = match self.take('=') {
                Some(()) => self.value()?,
                None => "",
            };
            match key {
                "r" => remaining = number(value),
                "t" => wait = number(value),
                _ => {}
            }
        }
        Some((remaining, wait))
    }

    /// Parses a bare item. Returns its text.
    fn value(&mut self) -> Option<&'a str> {
        let mut escaped = false;
        let ends_string = |c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        };
        let end = match self.0.as_bytes() {
            [b'"', ..] => 2 + self.0[1..].find(ends_string)?,
            // A byte sequence: Base64 between colons. `token` would stop at the `=` that may end the Base64.
            [b':', ..] => 2 + self.0[1..].find(':')?,
            // A display string. Quotes inside it are percent-encoded.
            [b'%', b'"', ..] => 3 + self.0[2..].find('"')?,
            _ => return self.token(),
        };
        self.split(end)
    }

    fn token(&mut self) -> Option<&'a str> {
        let outside = |c: char| !c.is_ascii_alphanumeric() && !"_-.*:/%?@+!#$&'^`|~".contains(c);
        self.split(self.0.find(outside).unwrap_or(self.0.len()))
    }

    /// Takes the first `end` bytes. Returns `None` if `end` is 0.
    fn split(&mut self, end: usize) -> Option<&'a str> {
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        (!taken.is_empty()).then_some(taken)
    }

    fn take(&mut self, wanted: char) -> Option<()> {
        self.0 = self.0.strip_prefix(wanted)?;
        Some(())
    }

    fn skip_spaces(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t']);
    }
}

/// Parses an integer that is not negative.
fn number(value: &str) -> Option<u64> {
    let number: i128 = value.parse().ok()?;
    let has_plus = value.starts_with('+');
    u64::try_from(number).ok().filter(|_| !has_plus)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn parsed(lines: &[&str]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(RATELIMIT, line.parse().unwrap());
        }
        parse(&headers).map(|wait| wait.as_secs())
    }

    #[test]
    fn the_longest_wait_of_an_exhausted_policy_counts() {
        for (lines, expected) in [
            (&[r#""default";r=0;t=3"#][..], Some(3)),
            (&[r#""a";r=0;t=3, "b";r=0;t=5"#], Some(5)),
            (&[r#""a";r=0;t=3"#, r#""b";r=0;t=5"#], Some(5)),
            (&[r#""a";r=7;t=60, "b";r=0;t=5"#], Some(5)),
            (&[r#""a";r=7;t=60"#], None),
            (&[r#""a";t=60"#], None),
            (&[r#""a";r=0"#], None),
            (&[r#""a"; r=0; t=3;pk=:c2VjcmV0:;x"#], Some(3)),
            (&[r#""a";pk=:c2VjcmV0Ow==:;r=0;t=3"#], Some(3)),
            (&[r#""a";note=%"b%22;r=1";r=0;t=3"#], Some(3)),
            (&[r#" "a";r=0;t=3 "#], Some(3)),
            (&[r#""a";r="0";t=3"#], None),
            (&[r#""a";r=0;t=+3"#], None),
            (&[r#""q\"u;r=0;t=9, \\";r=0;t=3"#], Some(3)),
            (&["token;r=0;t=3"], Some(3)),
            (&[r#""a";r=0;t=99999999999999999999"#], None),
            (&[r#""a";r=0;t=-1"#], None),
            (&[r#""a";r=-0;t=3"#], Some(3)),
            (&[r#""a";r=--0;t=3"#], None),
            (&[r#""a";r=-;t=3"#], None),
            (&[r#""a";r=0;t=1.5"#], None),
            (&[], None),
        ] {
            assert_eq!(parsed(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_malformed_field_is_ignored_as_a_whole() {
        for line in [
            "",
            ",",
            r#""a";r=0;t=3,"#,
            r#""a";r=0;t=3 "b""#,
            r#""a;r=0;t=3"#,
            r#""a";r=0;t="#,
            r#""a";;r=0;t=3"#,
            r#"("a");r=0;t=3"#,
            "100, 100;w=60",
        ] {
            assert_eq!(parsed(&[line]), None, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(value in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                parse(&HeaderMap::from_iter([(http::HeaderName::from_static(RATELIMIT), value)]));
            }
        }

        #[test]
        fn a_value_that_resembles_a_field_never_panics(value in r#"["a-z;=,rt0-9 \\]{0,40}"#) {
            let _ = parsed(&[value.as_str()]);
        }

        #[test]
        fn every_wait_is_read_back(seconds: u64, policies in 1..4_usize) {
            let members = vec![format!(r#""p";r=0;t={seconds}"#); policies];
            prop_assert_eq!(parsed(&[members.join(", ").as_str()]), Some(seconds));
        }
    }
}
