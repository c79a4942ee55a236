use bytes::Bytes;
use http::{HeaderValue, Response, header::CONTENT_TYPE};

use super::{Reason, Rejection, RejectionResponse, problem::write};

/// The default rejection: a problem document (RFC 9457), for all bodies that are `From<Bytes>`, such as axum's and
/// `http_body_util::Full`.
///
/// A rejection by quota has the type that `draft-ietf-httpapi-ratelimit-headers-11` registers. The document names the
/// policies that rejected the request, except [hidden](crate::Policy::hidden) ones:
///
/// ```json
/// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests",
///  "status":429,"violated-policies":["per-client"]}
/// ```
///
/// A rejection by [this instance's share](crate::FailureMode::Local) of a quota has status 503 and the type
/// `https://iana.org/assignments/http-problem-types#temporary-reduced-capacity`. The document names the policies in the
/// same way.
///
/// All other rejections have the type `about:blank`, which adds nothing to the status. Status 500 means that the
/// request lacks a key because the server is misconfigured. If the key has a [hint](Rejection::hint), the `detail` of
/// the document contains it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemJson;

impl<B: From<Bytes>> RejectionResponse<B> for ProblemJson {
    fn response(&self, rejection: &Rejection<'_>) -> Response<B> {
        let mut response = Response::new(B::from(document(rejection)));
        *response.status_mut() = rejection.status();
        let kind = const { HeaderValue::from_static("application/problem+json") };
        response.headers_mut().insert(CONTENT_TYPE, kind);
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
