//! Reads arbitrary bytes in gRPC's fields for retries, and compares the result with a plain table: `grpc-status` and
//! `grpc-retry-pushback-ms` of a response, and `grpc-timeout` of a call.
//!
//! Input: a byte that chooses the HTTP status, a byte that counts earlier attempts, then the fields' values, one a
//! line.
#![no_main]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use libfuzzer_sys::fuzz_target;
use tokio::time::Instant;
use tower_attempt::{Attempt, Dialect, Grpc, Hint, Outcomes, Requests, Verdict};

type Body = Full<Bytes>;

const STATUSES: [u16; 8] = [200, 200, 200, 400, 429, 500, 503, 504];

const UNAVAILABLE: u8 = 14;
const RESOURCE_EXHAUSTED: u8 = 8;

fuzz_target!(|data: &[u8]| {
    let [status, previous, fields @ ..] = data else {
        return;
    };
    let status = STATUSES[usize::from(*status) % STATUSES.len()];
    let mut fields = fields.split(|byte| *byte == b'\n');
    let mut field = || HeaderValue::from_bytes(fields.next()?).ok();
    let (grpc_status, pushback, timeout) = (field(), field(), field());
    verdict(status, grpc_status, pushback);
    time(u32::from(*previous), timeout);
});

type Outcome = Result<Response<()>, Infallible>;

fn verdict(status: u16, grpc_status: Option<HeaderValue>, pushback: Option<HeaderValue>) {
    let code = match (&grpc_status, status) {
        (Some(field), _) => text(field).and_then(code),
        (None, 200) => Some(0),
        (None, 429 | 502 | 503 | 504) => Some(UNAVAILABLE),
        (None, _) => None,
    };
    let hint = pushback
        .as_ref()
        .map(|field| match text(field).and_then(number) {
            Some(millis) => Hint::Exactly(Duration::from_millis(millis)),
            None => Hint::Never,
        });
    let expected = match (code, hint) {
        (Some(0), _) => Verdict::Success,
        (_, Some(Hint::Never)) => Verdict::transient().hinted(Hint::Never),
        (Some(UNAVAILABLE), None) => Verdict::transient(),
        (Some(UNAVAILABLE), Some(hint)) => Verdict::transient().hinted(hint),
        (Some(RESOURCE_EXHAUSTED), Some(hint)) => Verdict::throttled().hinted(hint),
        _ => Verdict::Fatal,
    };

    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    let fields = [
        ("grpc-status", grpc_status),
        ("grpc-retry-pushback-ms", pushback),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            response.headers_mut().insert(name, value);
        }
    }
    let grpc = Grpc::default().with(|all| all.idempotent_methods(["/"]));
    let context = grpc.context(&Request::<Body>::default());
    let outcome: Outcome = Ok(response);
    let verdict =
        Outcomes::<Request<Body>, _, _>::classify(&grpc, &context, &Attempt::PRIMARY, &outcome);
    assert_eq!(verdict, expected);
}

fn time(previous: u32, timeout: Option<HeaderValue>) {
    let mut request = Request::<Body>::default();
    if let Some(timeout) = &timeout {
        request
            .headers_mut()
            .insert("grpc-timeout", timeout.clone());
    }
    let grpc = Grpc::default();
    let before = Instant::now();
    let mut context = grpc.context(&request);
    let after = Instant::now();
    let expiry = Requests::<Request<Body>>::expiry(&grpc, &context);
    let limit = timeout.as_ref().and_then(text).and_then(duration);
    match (expiry.and_then(|expiry| expiry.instant()), limit) {
        (Some(end), Some(limit)) => assert!(before + limit <= end && end <= after + limit),
        (end, limit) => assert_eq!((end, limit), (None, None)),
    }

    Requests::mark(
        &grpc,
        &mut context,
        Attempt::retry(previous.saturating_add(1)),
        previous,
        &mut request,
    );
    let fields = request.headers();
    let seen = fields.get("grpc-previous-rpc-attempts").and_then(text);
    let expected = (previous > 0).then(|| previous.to_string());
    assert_eq!(seen, expected.as_deref());
    match limit {
        Some(limit) => {
            let left = fields.get("grpc-timeout").and_then(text).and_then(duration);
            // An exhausted timeout becomes the shortest valid one.
            assert!(left.unwrap() <= limit.max(Duration::from_nanos(1)));
        }
        None => assert_eq!(fields.get("grpc-timeout"), timeout.as_ref()),
    }
}

/// A field's value without the whitespace around it, which HTTP/2 does not remove.
fn text(field: &HeaderValue) -> Option<&str> {
    field.to_str().ok().map(str::trim_ascii)
}

/// A number without a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// A code in its only valid spelling.
fn code(text: &str) -> Option<u8> {
    (0..=16).find(|code: &u8| code.to_string() == text)
}

fn duration(text: &str) -> Option<Duration> {
    let (count, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count = number(count).filter(|_| count.len() <= 8)?;
    Some(match unit {
        "n" => Duration::from_nanos(count),
        "u" => Duration::from_micros(count),
        "m" => Duration::from_millis(count),
        "S" => Duration::from_secs(count),
        "M" => Duration::from_secs(count * 60),
        "H" => Duration::from_secs(count * 3600),
        _ => return None,
    })
}
