//! Reads arbitrary bytes in HTTP's fields for retries, and compares the result with other parsers: `Retry-After`,
//! `Date` and `RateLimit`.
//!
//! Input: a byte that chooses the status, a byte that chooses the method, then the fields' values, one a line. All
//! lines after the first two are `RateLimit`.
#![no_main]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use libfuzzer_sys::fuzz_target;
use sfv::{BareItem, List, ListEntry, Parameters, Parser};
use tower_attempt::{Attempt, Hint, Http, Outcomes, Requests, RetryReason, Verdict};

type Body = Full<Bytes>;

const STATUSES: [u16; 10] = [200, 301, 404, 408, 425, 429, 500, 502, 503, 504];

fuzz_target!(|data: &[u8]| {
    let [status, method, fields @ ..] = data else {
        return;
    };
    let status = STATUSES[usize::from(*status) % STATUSES.len()];
    let method = [Method::GET, Method::POST][usize::from(*method) % 2].clone();
    let mut names = ["retry-after", "date"].into_iter();
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for value in fields.split(|byte| *byte == b'\n') {
        let name = names.next().unwrap_or("ratelimit");
        if let Ok(value) = HeaderValue::from_bytes(value) {
            response.headers_mut().append(name, value);
        }
    }
    let fields = response.headers().clone();
    let mut request = Request::<Body>::default();
    *request.method_mut() = method.clone();
    let verdict = judge(&request, response);

    let is_repeated = match status {
        429 => true,
        408 | 425 | 500 | 502 | 503 | 504 => method == Method::GET,
        _ => false,
    };
    let Verdict::Retry { reason, hint } = verdict else {
        assert!(!is_repeated);
        return;
    };
    assert!(is_repeated);
    let hint = hint.map(|hint| match hint {
        Hint::AtLeast(wait) => wait,
        other => panic!("{other:?}"),
    });
    match (retry_after(&fields), status) {
        (Some(Wait::Exactly(wait)), _) => assert_eq!(hint, Some(wait)),
        (Some(Wait::ByTheClock), _) => assert!(hint.is_some()),
        (None, 429) => {
            if let Some(expected) = rate_limit(&fields) {
                assert_eq!(hint, expected);
            }
        }
        (None, _) => assert_eq!(hint, None),
    }
    // `Retry-After: 0` and a date in the past do not ask for less load.
    let is_throttled = status == 429 || (status == 503 && hint.is_some_and(|wait| !wait.is_zero()));
    assert_eq!(reason == RetryReason::Throttled, is_throttled);
});

fn judge(request: &Request<Body>, response: Response<()>) -> Verdict {
    type Outcome = Result<Response<()>, Infallible>;
    let http = Http::default();
    let context = http.context(request);
    let outcome: Outcome = Ok(response);
    Outcomes::<Request<Body>, _, _>::classify(&http, &context, &Attempt::PRIMARY, &outcome)
}

enum Wait {
    Exactly(Duration),
    /// A date, relative to the present time.
    ByTheClock,
}

fn retry_after(fields: &HeaderMap) -> Option<Wait> {
    let field = |name| fields.get(name)?.to_str().ok().map(str::trim);
    let value = field("retry-after")?;
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = value.parse().unwrap_or(u64::MAX);
        return Some(Wait::Exactly(Duration::from_secs(seconds)));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let date = field("date").and_then(|date| httpdate::parse_http_date(date).ok());
    Some(match date {
        Some(now) => Wait::Exactly(until.duration_since(now).unwrap_or_default()),
        None => Wait::ByTheClock,
    })
}

/// `None` if a line is not a list of items; then the code under test may find a hint or not.
fn rate_limit(fields: &HeaderMap) -> Option<Option<Duration>> {
    let mut longest = None;
    for line in fields.get_all("ratelimit") {
        let list: List = Parser::new(line.to_str().ok()?).parse().ok()?;
        // An empty line makes the combined list invalid.
        if list.is_empty() {
            return None;
        }
        for entry in &list {
            let ListEntry::Item(item) = entry else {
                return None;
            };
            if number(&item.params, "r") == Some(0) {
                longest = longest.max(number(&item.params, "t"));
            }
        }
    }
    let seconds = longest
        .filter(|seconds| *seconds >= 0)
        .map(i64::unsigned_abs);
    Some(seconds.map(Duration::from_secs))
}

fn number(parameters: &Parameters, name: &str) -> Option<i64> {
    match parameters.get(name)? {
        BareItem::Integer(number) => Some(i64::from(*number)),
        _ => None,
    }
}
