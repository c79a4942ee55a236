use super::{IntoKey, KeySink, RequestParts};
use crate::BuildError;

/// Finds a request's key.
///
/// For what a closure cannot say: an extractor with settings of its own, or one that borrows several things at once.
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
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// Writes the key's parts; `None` if the request has no key, whatever was written before.
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()>;

    /// Called once when a limiter is built.
    ///
    /// # Errors
    ///
    /// A setting with which no request could ever have a key. By default there is none.
    fn check(&self) -> Result<(), BuildError> {
        Ok(())
    }

    /// What the server lacks when a request has no key although every request should have one.
    ///
    /// With a hint, the policy's default for such requests is [`MissingKey::Error`](crate::MissingKey::Error): status 500, with
    /// the hint in the response and once in the log. By default there is none.
    fn hint(&self) -> Option<&'static str> {
        None
    }

    /// This key, or for requests that lack it, the `other`. A key of the one never equals a key of the other.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota, key::{self, KeyExtractor}};
    ///
    /// let by = key::header("x-api-key").or(key::peer_addr());
    /// Policy::new("per-client", Quota::per_second(10)).by(by);
    /// ```
    #[must_use]
    fn or<K: KeyExtractor>(self, other: K) -> Or<Self, K>
    where
        Self: Sized,
    {
        Or {
            first: self,
            second: other,
        }
    }
}

/// An owned key from a closure.
pub(crate) struct FnKey<F>(pub(crate) F);

impl<F, K> KeyExtractor for FnKey<F>
where
    F: Fn(RequestParts<'_>) -> K + Send + Sync + 'static,
    K: IntoKey,
{
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        (self.0)(head).write(sink)
    }
}

/// A borrowed key from a closure.
pub(crate) struct StrKey<F>(pub(crate) F);

impl<F> KeyExtractor for StrKey<F>
where
    F: for<'a> Fn(RequestParts<'a>) -> Option<&'a str> + Send + Sync + 'static,
{
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        (self.0)(head).write(sink)
    }
}

/// One key, or else another, from [`KeyExtractor::or`].
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        // Said first which of the two it is: what a client writes into a header cannot pose as another one's address.
        let (_, found) = sink.key(|sink| {
            sink.part(b"0");
            self.first.extract(head, sink)
        });
        if found {
            return Some(());
        }
        sink.part(b"1");
        self.second.extract(head, sink)
    }

    fn check(&self) -> Result<(), BuildError> {
        self.first.check()?;
        self.second.check()
    }

    fn hint(&self) -> Option<&'static str> {
        self.second.hint().or_else(|| self.first.hint())
    }
}

/// All keys, as parts of one. If one is missing, all are.
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
    use crate::key::{self, KeyExtractor};

    #[test]
    fn what_is_missing_is_hinted_at_wherever_it_is() {
        let hint = key::peer_addr().hint();
        assert!(hint.is_some());
        assert_eq!((key::peer_addr(), key::method()).hint(), hint);
        assert_eq!((key::method(), key::peer_addr()).hint(), hint);
        assert_eq!(key::peer_addr().or(key::method()).hint(), hint);
        assert_eq!(key::method().or(key::peer_addr()).hint(), hint);
    }
}
