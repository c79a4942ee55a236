use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use http::{HeaderName, HeaderValue, Response, header::CONTENT_TYPE};

use super::{Reason, Rejection, RejectionResponse};

/// Rejects with a gRPC status: HTTP 200 without a body, and the status in the headers.
///
/// | reason | status |
/// |---|---|
/// | quota | 8 `RESOURCE_EXHAUSTED` |
/// | missing key | 3 `INVALID_ARGUMENT` |
/// | missing key because of a misconfigured server | 13 `INTERNAL`, with the [hint](Rejection::hint) if the key has one |
/// | failed backend, late quota look-up, or too few tokens in the [local fallback](crate::FailureMode::Local) during or after such a failure | 14 `UNAVAILABLE` |
///
/// If the wait is known or the reason is a quota, the response has two more headers:
///
/// - `grpc-retry-pushback-ms` is the wait in milliseconds (gRFC A6). A rejection by a quota that can never allow the
///   request has -1 instead, which stops the client's retries.
/// - `grpc-status-details-bin` contains the wait, if there is one, as a `google.rpc.RetryInfo`. If policies rejected
///   the request, it also lists them, except [hidden](crate::Policy::hidden) ones, in a `google.rpc.QuotaFailure`.
///
/// The body type must have an empty `Default`, as tonic's has.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrpcRejection;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

impl<B: Default> RejectionResponse<B> for GrpcRejection {
    fn response(&self, rejection: &Rejection<'_>) -> Response<B> {
        let (code, message) = match rejection.reason() {
            Reason::Quota => (8_u16, "rate limit exceeded"),
            Reason::MissingKey => (3, "rate-limit key missing"),
            Reason::Misconfigured => (13, rejection.hint().unwrap_or("rate-limit key missing")),
            Reason::ReducedCapacity => (14, "temporarily reduced rate limit exceeded"),
            _ => (14, "rate limit unavailable"),
        };
        let mut response = Response::new(B::default());
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        fields.insert(STATUS, HeaderValue::from(code));
        fields.insert(MESSAGE, message_field(message));
        let wait = rejection.retry_after();
        // Without a known wait, a rejection by quota means that the request can never pass.
        if rejection.reason() == Reason::Quota || wait.is_some() {
            fields.insert(PUSHBACK, pushback(wait));
            let details = STANDARD_NO_PAD.encode(status(code, message, rejection));
            if let Ok(details) = HeaderValue::try_from(details) {
                fields.insert(DETAILS, details);
            }
        }
        response
    }

    fn has_retry_hint(&self) -> bool {
        true
    }
}

/// Percent-encodes the percent signs of a text, and all bytes that are not printable ASCII.
fn message_field(message: &str) -> HeaderValue {
    let mut field = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => field.push(byte.into()),
            _ => field += &format!("%{byte:02X}"),
        }
    }
    HeaderValue::try_from(field).unwrap_or(HeaderValue::from_static(""))
}

/// Returns the wait in milliseconds, rounded up so that the client waits long enough. At most `i32::MAX`, and -1
/// without a wait.
fn pushback(wait: Option<Duration>) -> HeaderValue {
    let Some(wait) = wait else {
        return HeaderValue::from_static("-1");
    };
    let millis = wait.as_nanos().div_ceil(1_000_000);
    HeaderValue::from(i32::try_from(millis).unwrap_or(i32::MAX))
}

/// Encodes a `google.rpc.Status` with its details.
fn status(code: u16, message: &str, rejection: &Rejection<'_>) -> Vec<u8> {
    let mut status = Message::default();
    status.integer(1, code.into());
    status.bytes(2, message.as_bytes());
    if let Some(wait) = rejection.retry_after() {
        let mut info = Message::default();
        info.bytes(1, &duration(wait).0);
        status.detail("RetryInfo", &info);
    }
    let mut failure = Message::default();
    for policy in rejection.shown().map(|rule| &*rule.name) {
        let mut violation = Message::default();
        violation.bytes(1, policy.as_bytes());
        failure.bytes(1, &violation.0);
    }
    if !failure.0.is_empty() {
        status.detail("QuotaFailure", &failure);
    }
    status.0
}

/// Encodes a `google.protobuf.Duration`.
fn duration(wait: Duration) -> Message {
    // The type's maximum: 10,000 years.
    let wait = wait.min(Duration::from_secs(315_576_000_000));
    let mut duration = Message::default();
    duration.integer(1, wait.as_secs());
    duration.integer(2, wait.subsec_nanos().into());
    duration
}

/// Encodes a protocol buffer.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// Writes seven bits per byte, the lowest first.
    fn varint(&mut self, mut value: u64) {
        loop {
            let low = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                return self.0.push(low);
            }
            self.0.push(low | 0x80);
        }
    }

    /// Writes a number. Zero is omitted, because it is the default.
    fn integer(&mut self, field: u8, value: u64) {
        if value != 0 {
            self.0.push(field << 3);
            self.varint(value);
        }
    }

    /// Writes a text, bytes or a message.
    fn bytes(&mut self, field: u8, bytes: &[u8]) {
        self.0.push(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Adds an `Any` to the details of a status.
    fn detail(&mut self, name: &str, message: &Self) {
        let mut url = String::from("type.googleapis.com/google.rpc.");
        url.push_str(name);
        let mut any = Self::default();
        any.bytes(1, url.as_bytes());
        any.bytes(2, &message.0);
        self.bytes(3, &any.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_varints() {
        for (value, bytes) in [
            (1, &[8, 1][..]),
            (127, &[8, 127]),
            (128, &[8, 128, 1]),
            (300, &[8, 172, 2]),
            (0, &[]),
        ] {
            let mut message = Message::default();
            message.integer(1, value);
            assert_eq!(message.0, bytes, "{value}");
        }
        let mut longest = Message::default();
        longest.varint(u64::MAX);
        assert_eq!(longest.0.len(), 10);
    }

    #[test]
    fn durations_stay_within_the_range_of_their_type() {
        let wait = Duration::new(2, 500_000_000);
        assert_eq!(duration(wait).0, [8, 2, 16, 128, 202, 181, 238, 1]);
        let whole = duration(Duration::from_secs(315_576_000_000));
        for longer in [315_576_000_001, u64::MAX] {
            assert_eq!(duration(Duration::from_secs(longer)).0, whole.0);
        }
        assert_eq!(duration(Duration::MAX).0, whole.0);
    }

    #[test]
    fn waits_are_rounded_up_to_a_millisecond() {
        assert_eq!(pushback(Some(Duration::from_nanos(1))), "1");
        assert_eq!(pushback(Some(Duration::from_millis(250))), "250");
        assert_eq!(pushback(Some(Duration::MAX)), "2147483647");
        assert_eq!(pushback(None), "-1");
    }
}
