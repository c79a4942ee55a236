use super::{KeySink, RequestParts};
use crate::BuildError;

/// Extracts a key from a request.
///
/// Implement the trait for a type of your own, for example for an extractor with settings. A closure of type
/// `Fn(RequestParts<'_>, &mut KeySink) -> Option<()>` also implements the trait. It suffices for a key of several
/// borrowed parts.
///
/// ```
/// use tower_dist_ratelimit::key::{KeyExtractor, KeySink, RequestParts};
///
/// /// One key per host and method.
/// struct HostAndMethod;
///
/// impl KeyExtractor for HostAndMethod {
///     fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
///         sink.part(head.uri().host()?.as_bytes());
///         sink.part(head.method().as_str().as_bytes());
///         Some(())
///     }
/// }
///
/// let key = |uri: &str| {
///     let request = http::Request::builder().uri(uri).body(()).ok()?;
///     let mut sink = KeySink::new();
///     HostAndMethod.extract(RequestParts::new(&request), &mut sink)?;
///     Some(sink.bytes().to_vec())
/// };
/// assert_eq!(key("http://example.com/a"), key("http://example.com/b"));
/// assert_ne!(key("http://example.com/a"), key("http://example.org/a"));
/// assert_eq!(key("/a"), None);
/// ```
#[must_use]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Writes the parts of the key to `sink`. Returns `None` if the request has no key. The limit then discards the
    /// parts that this call has written.
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()>;

    /// Checks the extractor's settings when the limit is built.
    ///
    /// # Errors
    ///
    /// An invalid setting, such as an invalid name of a header.
    ///
    /// # Default
    ///
    /// `Ok`.
    fn check(&self) -> Result<(), BuildError> {
        Ok(())
    }

    /// Returns an explanation of how to configure the server, for a key that every request should have.
    ///
    /// With a hint, the policy's default for requests without the key is
    /// [`MissingKey::Error`](crate::MissingKey::Error): usually status 500, with the hint in the response. With the
    /// `tracing` feature, each policy also logs the hint for the first such request.
    ///
    /// # Default
    ///
    /// `None`.
    fn hint(&self) -> Option<&'static str> {
        None
    }

    /// Returns an extractor that takes the `other` key if this extractor's key is missing. A key of one extractor
    /// never equals a key of the other.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota, key::{self, KeyExtractor}};
    ///
    /// let by = key::header("x-api-key").or(key::peer_addr());
    /// Policy::new("per-client", Quota::per_second(10)).by(by);
    /// ```
    fn or(self, other: impl KeyExtractor) -> impl KeyExtractor
    where
        Self: Sized,
    {
        Or(self, other)
    }
}

impl<F> KeyExtractor for F
where
    F: Fn(RequestParts<'_>, &mut KeySink) -> Option<()> + Send + Sync + 'static,
{
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        self(head, sink)
    }
}

struct Or<A, B>(A, B);

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        // The part `0` or `1` names the extractor. So a header, for example, cannot imitate an address.
        let found = sink.attempt(|sink| {
            sink.part(b"0");
            self.0.extract(head, sink)
        });
        if found {
            return Some(());
        }
        sink.part(b"1");
        self.1.extract(head, sink)
    }

    fn check(&self) -> Result<(), BuildError> {
        self.0.check()?;
        self.1.check()
    }

    fn hint(&self) -> Option<&'static str> {
        self.1.hint().or_else(|| self.0.hint())
    }
}

// A tuple is one key with the parts of all its elements. If one element is missing, the whole key is missing.
macro_rules! parts {
    ($($name:ident: $place:tt),*) => {
        impl<$($name: KeyExtractor),*> KeyExtractor for ($($name),*) {
            fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
                $(self.$place.extract(head, sink)?;)*
                Some(())
            }

            fn check(&self) -> Result<(), BuildError> {
                $(self.$place.check()?;)*
                Ok(())
            }

            fn hint(&self) -> Option<&'static str> {
                None$(.or_else(|| self.$place.hint()))*
            }
        }
    };
}

parts!(A: 0, B: 1);
parts!(A: 0, B: 1, C: 2);
parts!(A: 0, B: 1, C: 2, D: 3);

#[cfg(test)]
mod tests {
    use http::Request;

    use crate::key::{self, IntoKey, KeyExtractor, KeySink, RequestParts};

    #[test]
    fn a_combined_key_has_the_hint_of_its_parts() {
        let hint = key::peer_addr().hint();
        assert!(hint.is_some());
        assert_eq!((key::peer_addr(), key::method()).hint(), hint);
        assert_eq!((key::method(), key::peer_addr()).hint(), hint);
        assert_eq!(key::peer_addr().or(key::method()).hint(), hint);
        assert_eq!(key::method().or(key::peer_addr()).hint(), hint);
    }

    #[test]
    fn no_part_imitates_the_mark_of_an_alternative() {
        let bytes = |first: &'static [u8], last: &'static [u8]| {
            let part = |bytes: &'static [u8]| {
                move |_: RequestParts<'_>, sink: &mut KeySink| bytes.write(sink)
            };
            let missing = || |_: RequestParts<'_>, _: &mut KeySink| None;
            let key = (part(first), missing().or(missing()).or(part(last)));
            let mut sink = KeySink::new();
            key.extract(RequestParts::new(&Request::new(())), &mut sink);
            sink.bytes().to_vec()
        };
        let mark = b"1\0\0\0\0\0\0\x81";
        assert_ne!(bytes(b"tenant", mark), bytes(b"tenant\0\x861", b""));
    }
}
