use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::Decision;

pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The largest integer of a structured field (RFC 9651, 3.3.1): fifteen digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The length of a parameter's name, with what is around it.
const NAME: usize = 3;

/// Which responses tell the client where it stands, in the `RateLimit-Policy` and `RateLimit` fields of
/// `draft-ietf-httpapi-ratelimit-headers-11`.
///
/// ```text
/// RateLimit-Policy: "per-client";q=600;w=60
/// RateLimit: "per-client";r=99;t=1
/// ```
///
/// `q` and `w` are the limit and its window in seconds (left out below one second), `r` the tokens that are left, `t` the
/// seconds until the bucket is full again, or until the same request can pass if it was refused. There is one member
/// per policy. Fields of inner services are kept. A refusal's `Retry-After` comes in any case.
///
/// # Cost
///
/// A response with fields takes an allocation for the value and those of the header map; without, nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Fields {
    /// Every response. The default: a client that can see the limit can keep it.
    #[default]
    Always,
    /// Refusals only.
    OnRefusal,
    /// Refusals, and responses after which at most this share of a burst is left: above 0, at most 1.
    NearLimit(f64),
    /// None.
    Never,
}

/// A field's value under construction. Structured fields are lists here: members between commas, then parameters.
///
/// Made on every response, so by hand: the formatting machinery, and vectors that can spill, take several times as long.
struct Line {
    inline: [u8; 128],
    /// Of `inline`.
    len: usize,
    /// All of it, once it does not fit inline; else empty.
    heap: Vec<u8>,
}

/// `RateLimit-Policy`: a constant, for all the policies.
pub(crate) fn policies<'a>(
    policies: impl Iterator<Item = (&'a str, crate::Quota)>,
) -> Option<HeaderValue> {
    let mut line = Line::new();
    for (quoted, quota) in policies {
        line.member(quoted);
        line.parameter(b";q=", quota.limit());
        if quota.window() >= Duration::from_secs(1) {
            line.parameter(b";w=", whole_seconds(quota.window()));
        }
    }
    line.finish()
}

/// `RateLimit`: what was decided, for the policies that were asked.
pub(crate) fn state<'a>(
    decided: impl Iterator<Item = (&'a str, &'a Decision)>,
) -> Option<HeaderValue> {
    let mut line = Line::new();
    for (quoted, decision) in decided {
        line.member(quoted);
        line.parameter(b";r=", decision.remaining);
        if let Some(wait) = wait(decision) {
            line.parameter(b";t=", whole_seconds(wait));
        }
    }
    line.finish()
}

/// How long until something changes for the client; unless nothing will.
fn wait(decision: &Decision) -> Option<Duration> {
    if decision.allowed {
        Some(decision.reset_after)
    } else {
        decision.retry_after
    }
}

/// Where the client stands with one policy, in the fields that came before the standard ones.
pub(crate) struct Standing {
    limit: HeaderValue,
    remaining: HeaderValue,
    reset: Option<HeaderValue>,
}

impl Standing {
    pub(crate) fn of(decision: &Decision) -> Self {
        Self {
            limit: integer(decision.limit),
            remaining: integer(decision.remaining),
            reset: wait(decision).map(|wait| integer(whole_seconds(wait))),
        }
    }

    /// These are no lists: if an inner service has said one of them, all are its own.
    pub(crate) fn put_on(self, fields: &mut HeaderMap) {
        if [X_LIMIT, X_REMAINING, X_RESET]
            .iter()
            .any(|name| fields.contains_key(name))
        {
            return;
        }
        let _ = fields.try_insert(X_LIMIT, self.limit);
        let _ = fields.try_insert(X_REMAINING, self.remaining);
        if let Some(reset) = self.reset {
            let _ = fields.try_insert(X_RESET, reset);
        }
    }
}

/// A `Retry-After`: at least a second, since 0 would invite the client to come back at once.
pub(crate) fn retry_after(wait: Duration) -> HeaderValue {
    integer(whole_seconds(wait).max(1))
}

/// In one allocation, where `HeaderValue::from` takes three.
fn integer(value: u64) -> HeaderValue {
    HeaderValue::from_bytes(Digits::of(value).text()).unwrap_or_else(|_| HeaderValue::from(value))
}

/// As text in quotes: a string of structured fields, and just so one of JSON, for printable ASCII.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', r"\\").replace('"', r#"\""#))
}

/// Rounded up, so that who waits this long has waited long enough.
fn whole_seconds(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// A number in decimal, written from its end, with room for a name in front.
struct Digits {
    text: [u8; NAME + MAX_DIGITS],
    start: usize,
}

/// Of a `u64`.
const MAX_DIGITS: usize = 20;

/// From `00` to `99`: two digits at a time, because each division waits for the one before.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number: u8 = 0;
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

impl Digits {
    #[inline]
    fn of(mut value: u64) -> Self {
        let mut text = [0; NAME + MAX_DIGITS];
        let mut start = text.len();
        while value >= 10 {
            start -= 2;
            text[start..start + 2].copy_from_slice(&PAIRS[(value % 100) as usize]);
            value /= 100;
        }
        // What is left is one digit, or none if there was an even number of them.
        if value > 0 || start == text.len() {
            start -= 1;
            text[start] = b'0' + (value % 10) as u8;
        }
        Self { text, start }
    }

    fn text(&self) -> &[u8] {
        &self.text[self.start..]
    }

    #[inline]
    fn behind(&mut self, name: &[u8; NAME]) -> &[u8] {
        self.start -= NAME;
        self.text[self.start..self.start + NAME].copy_from_slice(name);
        self.text()
    }
}

impl Line {
    fn new() -> Self {
        Self {
            inline: [0; 128],
            len: 0,
            heap: Vec::new(),
        }
    }

    #[inline]
    fn push(&mut self, text: &[u8]) {
        let end = self.len + text.len();
        match self.inline.get_mut(self.len..end) {
            Some(to) if self.heap.is_empty() => {
                to.copy_from_slice(text);
                self.len = end;
            }
            _ => self.spill(text),
        }
    }

    #[cold]
    fn spill(&mut self, text: &[u8]) {
        if self.heap.is_empty() {
            self.heap.extend_from_slice(&self.inline[..self.len]);
        }
        self.heap.extend_from_slice(text);
    }

    fn text(&self) -> &[u8] {
        if self.heap.is_empty() {
            &self.inline[..self.len]
        } else {
            &self.heap
        }
    }

    fn member(&mut self, quoted: &str) {
        if self.len > 0 {
            self.push(b", ");
        }
        self.push(quoted.as_bytes());
    }

    fn parameter(&mut self, name: &[u8; NAME], value: u64) {
        self.push(Digits::of(value.min(MAX_INTEGER)).behind(name));
    }

    fn finish(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(self.text()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quota;

    #[test]
    fn a_wait_of_less_than_a_second_is_told_as_a_second() {
        assert_eq!(retry_after(Duration::ZERO), "1");
        assert_eq!(retry_after(Duration::from_nanos(1)), "1");
        assert_eq!(retry_after(Duration::from_millis(1001)), "2");
        assert_eq!(retry_after(Duration::MAX), u64::MAX.to_string());
    }

    #[test]
    fn fields_are_structured_fields_whatever_the_name_and_numbers() {
        let names = ["plain", r#"quo"ted"#, r"back\slash", "spa ce;q=1, x"];
        let decision = Decision::refuse(u64::MAX, u64::MAX, Some(Duration::MAX), Duration::MAX);
        for name in names {
            let quoted = quote(name);
            let quota = Quota::per_minute(u64::MAX);
            for value in [
                policies([(quoted.as_str(), quota)].into_iter()).unwrap(),
                state([(quoted.as_str(), &decision)].into_iter()).unwrap(),
            ] {
                let list: sfv::List = sfv::Parser::new(value.as_bytes()).parse().unwrap();
                let sfv::ListEntry::Item(item) = &list[0] else {
                    panic!("{list:?}")
                };
                assert_eq!(
                    (list.len(), item.bare_item.as_string().unwrap().as_str()),
                    (1, name)
                );
            }
            assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), name);
        }
    }

    #[test]
    fn fields_of_many_policies_are_whole() {
        let names: Vec<String> = (0..16)
            .map(|number| quote(&"n".repeat(number + 1)))
            .collect();
        let decision = Decision::allow(1, 10, 7, Duration::from_secs(3));
        let value = state(names.iter().map(|name| (name.as_str(), &decision))).unwrap();
        let members: Vec<String> = names.iter().map(|name| format!("{name};r=7;t=3")).collect();
        assert_eq!(value, members.join(", "));
    }

    #[test]
    fn numbers_of_any_length_are_written_out() {
        for value in (0..20).flat_map(|digits| [10_u64.pow(digits) - 1, 10_u64.pow(digits)]) {
            let decision = Decision::allow(1, 10, value, Duration::from_secs(value));
            let told = value.min(MAX_INTEGER);
            let expected = format!("\"a\";r={told};t={told}");
            assert_eq!(state([("\"a\"", &decision)].into_iter()).unwrap(), expected);
        }
    }

    #[test]
    fn windows_below_a_second_are_left_out() {
        let quota = Quota::new(5, Duration::from_millis(999));
        assert_eq!(
            policies([("\"a\"", quota)].into_iter()).unwrap(),
            r#""a";q=5"#
        );
        let quota = Quota::new(5, Duration::from_millis(1001));
        assert_eq!(
            policies([("\"a\"", quota)].into_iter()).unwrap(),
            r#""a";q=5;w=2"#
        );
    }
}
