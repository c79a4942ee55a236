//! Problem documents (RFC 9457).

use bytes::Bytes;

use super::Reason;
use crate::headers::quote;

/// The document of a rejection by one policy's quota, the usual case. It is built once.
pub(crate) fn over_quota(quoted: &str) -> Bytes {
    let text = write(Reason::Quota, None, [quoted].into_iter());
    let shared = Bytes::from(text);
    // The first clone allocates the shared counter, so no request has to.
    drop(shared.clone());
    shared
}

/// The document of a rejection by these policies, whose names are JSON strings.
pub(super) fn write<'a>(
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
    let title = status.canonical_reason().unwrap_or_default();
    let mut document = format!(
        r#"{{"type":"{kind}","title":"{title}","status":{}"#,
        status.as_u16()
    );
    if let Some(detail) = detail {
        document.push_str(r#","detail":"#);
        document.push_str(&quote(detail));
    }
    let mut before = r#","violated-policies":["#;
    for quoted in violated {
        document.push_str(before);
        document.push_str(quoted);
        before = ",";
    }
    document.push_str(if before == "," { "]}" } else { "}" });
    document
}
