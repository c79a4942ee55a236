use bytes::Bytes;

use super::Reason;
use crate::headers::quote;

/// Builds the document of a rejection by the quota of one policy. This is the usual case, so the document is built once
/// and cloned.
pub(crate) fn over_quota(quoted: &str) -> Bytes {
    let shared = Bytes::from(write(Reason::Quota, None, [quoted].into_iter()));
    // `Bytes` allocates its reference count at the latest with the first clone. The first clone is made here, so that
    // no request has to allocate the count.
    drop(shared.clone());
    shared
}

/// Builds the document of a rejection. `violated` are the names of the policies to list, as JSON strings.
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
    let status = status.as_u16();
    let mut document = format!(r#"{{"type":"{kind}","title":"{title}","status":{status}"#);
    if let Some(detail) = detail {
        document += r#","detail":"#;
        for char in quote(detail).chars() {
            match char {
                '\0'..' ' => document += &format!(r"\u{:04x}", u32::from(char)),
                _ => document.push(char),
            }
        }
    }
    let mut before = r#","violated-policies":["#;
    for name in violated {
        document += before;
        document += name;
        before = ",";
    }
    document += if before == "," { "]}" } else { "}" };
    document
}
