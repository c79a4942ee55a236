use super::{KeyExtractor, KeySink, RequestParts};

/// The request's method, from [`method`].
#[derive(Clone, Copy, Debug)]
pub struct Method;

/// One key per method. Every request has one.
///
/// Of use next to something else: `(key::matched_path(), key::method())` is a key of two parts. By itself it lets a
/// client that makes up methods have as many buckets as it likes.
#[must_use]
pub fn method() -> Method {
    Method
}

impl KeyExtractor for Method {
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        sink.part(head.method().as_str().as_bytes());
        Some(())
    }
}
