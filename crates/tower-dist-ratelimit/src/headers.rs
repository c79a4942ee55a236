mod field_text;

use std::{sync::Mutex, time::Duration};

use http::{HeaderName, HeaderValue};

use self::field_text::FieldText;
use crate::{BuildError, Decision, Quota, build_error::ensure};

pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

pub(crate) static X_RATELIMIT: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// The responses that carry the `RateLimit-Policy` and `RateLimit` headers of
/// `draft-ietf-httpapi-ratelimit-headers-11`.
///
/// ```text
/// RateLimit-Policy: "per-client";q=600;w=60
/// RateLimit: "per-client";r=99;t=1
/// ```
///
/// | parameter | meaning |
/// |---|---|
/// | `q` | the quota in tokens: the limit, or the burst if the burst is larger; the places of a leaky queue count as its burst |
/// | `w` | the seconds in which `q` tokens come back, rounded up; left out below one second |
/// | `r` | the remaining tokens, at most `q` |
/// | `t` if the policy allows the request | the seconds until the key has no used tokens, for example until its bucket is full; rounded up |
/// | `t` if the policy rejects the request | the seconds until the policy would allow the same request, rounded up; left out if the policy would never allow it |
///
/// The example is a quota of 600 per minute with a burst of 100, so `r` is never above 100. `q / w` is about the rate
/// that a client can sustain: 5 per second with a burst of 10 are `q=10;w=2`.
///
/// `RateLimit` has one member per policy that decided on the request and is not hidden. `RateLimit-Policy` usually
/// names the same policies. The layer adds no such headers if no policy decided on the request, or if all policies that
/// decided are hidden. It also adds none if the failure mode decided without a count, or if the limit is a
/// [shadow](crate::RateLimitLayerBuilder::shadow). If the inner service has set `RateLimit` headers, they stay.
///
/// If the wait is known, a rejection usually has `Retry-After`, even if it has no `RateLimit` headers. A [gRPC
/// rejection](crate::GrpcRejection) has `grpc-retry-pushback-ms` instead of `Retry-After`.
///
/// # Cost
///
/// The values of the headers usually take one or two allocations. The header map can allocate, too.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum ResponseHeaders {
    /// Every response, with the exceptions in the docs of [`ResponseHeaders`]. This is the default, because a client
    /// that sees a limit can stay within it.
    #[default]
    Always,
    /// Rejections only.
    OnRejection,
    /// Rejections, and responses when at most this share of a policy's burst remains. The share of the burst is rounded
    /// up to a whole token. If the algorithm has no burst, the share refers to the limit. In a leaky queue, the share
    /// refers to the number of places. The remaining tokens of [hidden](crate::Policy::hidden) policies are ignored.
    /// The share must be above 0 and at most 1.
    NearLimit(f64),
    /// No response gets `RateLimit` headers from the layer.
    Never,
}

impl ResponseHeaders {
    pub(crate) fn check(self) -> Result<(), BuildError> {
        if let Self::NearLimit(share) = self {
            let is_valid = share > 0.0 && share <= 1.0;
            ensure!(is_valid, "headers" is format_args!("NearLimit({share})"), "above 0 and at most 1");
        }
        Ok(())
    }
}

/// Returns the value of `RateLimit-Policy`, or `None` without policies.
pub(crate) fn policies<'a>(all: impl Iterator<Item = (&'a str, Quota)>) -> Option<HeaderValue> {
    let mut text = FieldText::new();
    for (quoted, quota) in all {
        text.member(quoted);
        let (tokens, window) = quota.most();
        text.parameter(b";q=", tokens);
        if window >= Duration::from_secs(1) {
            text.parameter(b";w=", whole_seconds(window));
        }
    }
    text.finish()
}

/// Returns the value of `RateLimit`, or `None` without decisions.
pub(crate) fn state<'a>(all: impl Iterator<Item = (&'a str, &'a Decision)>) -> Option<HeaderValue> {
    let mut text = FieldText::new();
    for (quoted, decision) in all {
        text.member(quoted);
        let (remaining, seconds) = numbers(decision);
        text.parameter(b";r=", remaining);
        if let Some(seconds) = seconds {
            text.parameter(b";t=", seconds);
        }
    }
    text.finish()
}

/// Returns the numbers of a decision for `RateLimit`: the remaining tokens (`r`), and [`wait`] in whole seconds (`t`).
pub(crate) fn numbers(decision: &Decision) -> (u64, Option<u64>) {
    (decision.remaining, wait(decision).map(whole_seconds))
}

/// Returns the numbers of one policy for the headers of [`X_RATELIMIT`]. `most` is the number for `X-RateLimit-Limit`.
pub(crate) fn x_ratelimit(most: u64, decision: &Decision) -> [Option<u64>; 3] {
    let (remaining, seconds) = numbers(decision);
    [Some(most), Some(remaining), seconds]
}

fn wait(decision: &Decision) -> Option<Duration> {
    match decision.allowed {
        true => Some(decision.reset_after),
        false => decision.retry_after,
    }
}

/// The header values of a rejection that depend on its numbers.
#[derive(Clone)]
pub(crate) struct RejectionValues {
    pub(crate) retry_after: Option<HeaderValue>,
    pub(crate) state: Option<HeaderValue>,
}

/// A cache of the header values of rejections that a single policy decided. The first rejection with new numbers usually
/// stores only the numbers. If the next rejection has the same numbers, it usually stores its values, and further such
/// rejections share these values.
#[derive(Default)]
pub(crate) struct LatestRejection(Mutex<(RejectionNumbers, Option<RejectionValues>)>);

/// The index of a rejection's only policy, and the [`numbers`] of its decision.
pub(crate) type RejectionNumbers = (usize, (u64, Option<u64>));

impl LatestRejection {
    /// Returns the values for these numbers.
    pub(crate) fn values(
        &self,
        numbers: RejectionNumbers,
        build: impl Fn() -> RejectionValues,
    ) -> RejectionValues {
        // If another thread uses the latest values, builds new ones instead of waiting.
        let Ok(mut latest) = self.0.try_lock() else {
            return build();
        };
        let (shown, kept) = &mut *latest;
        if *shown != numbers {
            (*shown, *kept) = (numbers, None);
            return build();
        }
        kept.get_or_insert_with(build).clone()
    }
}

/// Returns the value of `Retry-After` for a wait: at least one second, because 0 invites an immediate retry.
pub(crate) fn retry_after(wait: Duration) -> HeaderValue {
    integer(whole_seconds(wait).max(1))
}

/// A number in one allocation; `HeaderValue::from` usually takes two.
pub(crate) fn integer(number: u64) -> HeaderValue {
    let mut text = FieldText::new();
    text.number(number);
    text.finish().unwrap_or_else(|| HeaderValue::from(number))
}

/// Quotes a text. For printable ASCII, the result is both a string of a structured field and a JSON string.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', r"\\").replace('"', r#"\""#))
}

/// Seconds, rounded up.
fn whole_seconds(duration: Duration) -> u64 {
    let rest = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(rest)
}

#[cfg(test)]
mod tests {
    use super::{field_text::MAX_INTEGER, *};
    use crate::Quota;

    #[test]
    fn a_wait_is_written_in_seconds_rounded_up_and_at_least_one() {
        for (wait, seconds) in [
            (Duration::ZERO, "1"),
            (Duration::from_nanos(1), "1"),
            (Duration::from_millis(1001), "2"),
            (Duration::from_secs(2), "2"),
            (Duration::from_secs(1), "1"),
            (Duration::MAX, "18446744073709551615"),
        ] {
            assert_eq!(retry_after(wait), seconds);
        }
    }

    #[test]
    fn headers_are_structured_fields_for_all_names_and_numbers() {
        let names = ["plain", r#"quo"ted"#, r"back\slash", "spa ce;q=1, x"];
        let decision = Decision::reject(u64::MAX, u64::MAX, Some(Duration::MAX), Duration::MAX);
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
    fn headers_of_many_policies_are_complete() {
        let names: Vec<String> = (0..16)
            .map(|number| quote(&"n".repeat(number + 1)))
            .collect();
        let decision = Decision::allow(1, 10, 7, Duration::from_secs(3));
        let value = state(names.iter().map(|name| (name.as_str(), &decision))).unwrap();
        let members: Vec<String> = names.iter().map(|name| format!("{name};r=7;t=3")).collect();
        assert_eq!(value, members.join(", "));
    }

    /// The longest names. Each backslash is written as two characters.
    #[test]
    fn a_first_member_that_is_longer_than_the_line_has_inline_is_a_member_of_its_own() {
        for escaped in 60..=64 {
            let name = format!("{}{}", "\\".repeat(escaped), "n".repeat(64 - escaped));
            let quoted = [quote(&name), quote("other")];
            let quota = Quota::per_minute(7);
            let value = policies(quoted.iter().map(|name| (name.as_str(), quota))).unwrap();
            let list: sfv::List = sfv::Parser::new(value.as_bytes()).parse().unwrap();
            assert_eq!(list.len(), 2, "{value:?}");
        }
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
