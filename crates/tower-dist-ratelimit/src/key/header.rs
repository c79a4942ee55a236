use http::HeaderName;

use super::{KeyExtractor, KeySink, RequestParts};
use crate::BuildError;

/// The value of a request header, from [`header`].
#[derive(Debug)]
pub struct Header {
    given: String,
    /// None if no header can be called so.
    name: Option<HeaderName>,
}

/// One key per value of the header of this name; without the header the key is missing.
///
/// If there are several, the first counts. The value is whatever the client writes, so use a header that something in
/// front of the limit has verified, such as an API key that was checked, or the client can have as many buckets as it
/// likes.
///
/// # Errors
///
/// A name that cannot be a header's is reported when the limiter is built.
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory, key};
///
/// let per_key = |name| Policy::new("per-key", Quota::per_second(10)).by(key::header(name));
/// assert!(RateLimitLayer::builder(Memory::default()).limit(per_key("X-Api-Key")).build().is_ok());
/// let error = RateLimitLayer::builder(Memory::default()).limit(per_key("api key")).build().unwrap_err();
/// assert_eq!((error.field(), error.value()), ("header", "\"api key\""));
/// ```
#[must_use]
pub fn header(name: &str) -> Header {
    Header {
        given: name.to_owned(),
        name: HeaderName::from_bytes(name.as_bytes()).ok(),
    }
}

impl KeyExtractor for Header {
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        sink.part(head.headers().get(self.name.as_ref()?)?.as_bytes());
        Some(())
    }

    fn check(&self) -> Result<(), BuildError> {
        if self.name.is_none() {
            return Err(BuildError::new(
                "header",
                format_args!("{:?}", self.given),
                "the name of a header",
            ));
        }
        Ok(())
    }
}
