use bytes::Bytes;
use http::{HeaderValue, Response, header::CONTENT_TYPE};

use super::{Reason, Rejection, RejectionResponse};
use crate::headers::quote;

/// The default rejection: a problem document (RFC 9457), for all bodies that are `From<Bytes>`, such as axum's and
/// `http_body_util::Full`.
///
/// A rejection by quota has the type that `draft-ietf-httpapi-ratelimit-headers-11` registers, and names the policies that
/// rejected:
///
/// ```json
/// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests",
///  "status":429,"violated-policies":["per-client"]}
/// ```
///
/// A rejection by [this instance's share](crate::FailureMode::Local) of a quota has status 503 and the type
/// `https://iana.org/assignments/http-problem-types#temporary-reduced-capacity`, and also names the policies.
///
/// All other rejections have the type `about:blank`, which adds nothing to the status. Status 500 has a `detail` with the
/// [hint](Rejection::hint).
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemJson;

impl<B: From<Bytes>> RejectionResponse<B> for ProblemJson {
    fn response(&self, rejection: &Rejection<'_>) -> Response<B> {
        let mut response = Response::new(B::from(document(rejection)));
        *response.status_mut() = rejection.status();
        response.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        response
    }
}

fn document(rejection: &Rejection<'_>) -> Bytes {
    let reason = rejection.reason();
    let mut shown = rejection.shown();
    if let (Reason::Quota, Some(rule), None) = (reason, shown.next(), shown.next()) {
        return rule.problem.clone();
    }
    let quoted = rejection.shown().map(|rule| rule.quoted.as_str());
    write(reason, rejection.hint(), quoted).into()
}

/// The document of a rejection by one policy's quota, the usual case. It is built once.
pub(crate) fn over_quota(quoted: &str) -> Bytes {
    let shared = Bytes::from(write(Reason::Quota, None, [quoted].into_iter()));
    // The first clone allocates the shared counter, so no request has to.
    drop(shared.clone());
    shared
}

/// The document of a rejection by these policies, whose names are JSON strings.
fn write<'a>(
    reason: Reason,
    detail: Option<&str>,
    violated: impl Iterator<Item = &'a str>,
) -> String {
    let kind = match reason {
        Reason::Quota => "https://iana.org/assignments/http-problem-types#quota-exceeded",
        Reason::ReducedCapacity => {
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
        }
        _ => "about:blank",
    };
    let status = reason.status();
    let (title, status) = (
        status.canonical_reason().unwrap_or_default(),
        status.as_u16(),
    );
    let mut document = format!(r#"{{"type":"{kind}","title":"{title}","status":{status}"#);
    if let Some(detail) = detail {
        document += r#","detail":"#;
        document += &quote(detail);
    }
    let violated: Vec<&str> = violated.collect();
    if !violated.is_empty() {
        document += r#","violated-policies":["#;
        document += &violated.join(",");
        document.push(']');
    }
    document.push('}');
    document
}
