//! The least that a limit over HTTP does, as one closure around the inner service.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use itoa::Buffer;
use tower::{Service, service_fn};
use tower_dist_ratelimit::Decision;

use super::floor::Floor;
use super::inner::{KEY, Request, Response};

/// The fields of an admitted request and of a rejected one, without their numbers.
const ADMITTED: [&str; 3] = [
    r#""per-client";q=1000000000;w=1"#,
    r#""per-client";r="#,
    ";t=",
];
const REJECTED: [&str; 2] = [r#""per-client";q=1;w=3600"#, r#""per-client";r=0;t="#];

/// The parts of a response that are the same for all requests. A policy is built at run time, so they are shared by
/// reference counts.
struct Shared {
    limiter: Floor,
    admitted: HeaderValue,
    rejected: HeaderValue,
    problem: Bytes,
}

pub(crate) const PROBLEM: &str = r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"violated-policies":["per-client"]}"#;

pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// A service that looks up the client's key, makes the least decision and sends the same bytes as our layer. The key is
/// the header's value itself, so it is not copied.
pub(crate) fn http_floor<S>(
    limiter: Floor,
    with_fields: bool,
    mut inner: S,
) -> impl Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone
where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone,
{
    let shared = Arc::new(Shared {
        limiter,
        admitted: value(&[ADMITTED[0]]),
        rejected: value(&[REJECTED[0]]),
        problem: Bytes::from(PROBLEM.to_owned()),
    });
    service_fn(move |request: Request| {
        let decision = shared.limiter.charge(&request.headers()[KEY]);
        let answer = if decision.allowed {
            let policy = with_fields.then(|| shared.admitted.clone());
            Ok((inner.call(request), policy))
        } else {
            Err((shared.rejected.clone(), shared.problem.clone()))
        };
        async move {
            let (call, policy) = match answer {
                Ok(admitted) => admitted,
                Err((policy, problem)) => return Ok(rejection(&decision, policy, problem)),
            };
            let mut response = call.await?;
            if let Some(policy) = policy {
                let fields = response.headers_mut();
                fields.append(RATELIMIT_POLICY, policy);
                let (mut remaining, mut reset) = (Buffer::new(), Buffer::new());
                let remaining = remaining.format(decision.remaining);
                let reset = reset.format(seconds(decision.reset_after));
                let state = value(&[ADMITTED[1], remaining, ADMITTED[2], reset]);
                fields.append(RATELIMIT, state);
            }
            Ok(response)
        }
    })
}

fn rejection(decision: &Decision, policy: HeaderValue, problem: Bytes) -> Response {
    let mut response = Response::new(Body::from(problem));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let mut buffer = Buffer::new();
    let seconds = buffer.format(seconds(decision.retry_after.unwrap_or_default()));
    let fields = response.headers_mut();
    let problem = HeaderValue::from_static("application/problem+json");
    fields.append(CONTENT_TYPE, problem);
    fields.append(RETRY_AFTER, value(&[seconds]));
    fields.append(RATELIMIT_POLICY, policy);
    fields.append(RATELIMIT, value(&[REJECTED[1], seconds]));
    response
}

/// The time in seconds, rounded up.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// A value in one allocation.
fn value(parts: &[&str]) -> HeaderValue {
    HeaderValue::try_from(parts.concat()).expect("printable")
}
