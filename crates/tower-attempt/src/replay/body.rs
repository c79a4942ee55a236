mod unread;

use bytes::Bytes;
use http_body::Body;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Empty, Full};

use self::unread::in_memory;

/// An HTTP body that can be sent again when it is in memory. Its default is the empty body.
///
/// Implemented for `Empty`, `Full`, `BoxBody` and `UnsyncBoxBody`, and behind features
/// for `axum::body::Body`, `tonic::body::Body` and `reqwest::Body`.
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use tower_attempt::ReplayableBody;
///
/// let body = Full::new(Bytes::from_static(b"hello"));
/// assert_eq!(body.into_memory().unwrap(), "hello");
/// ```
#[diagnostic::on_unimplemented(
    message = "the body `{Self}` can't be sent again",
    note = "to retry or hedge, use one of the bodies that implement `ReplayableBody`: `Full`, `Empty`, `BoxBody`, `UnsyncBoxBody`, or a framework's own behind its feature",
    note = "a server's `Incoming` body can be collected or boxed by a `map_request` above the layer"
)]
pub trait ReplayableBody: Body<Data = Bytes> + Default {
    /// The whole content, if it is in memory; otherwise the body, unchanged for its reader.
    ///
    /// A type that hides what it holds is polled once if it knows its exact size: a body in memory
    /// gives all of its content at the first poll.
    ///
    /// # Errors
    ///
    /// Gives the body back when it is not, or not wholly, in memory.
    fn into_memory(self) -> Result<Bytes, Self>;

    /// A body with this content.
    fn from_memory(content: Bytes) -> Self;
}

impl ReplayableBody for Full<Bytes> {
    fn into_memory(self) -> Result<Bytes, Self> {
        Ok(self.into_inner().unwrap_or_default())
    }

    fn from_memory(content: Bytes) -> Self {
        Self::new(content)
    }
}

impl ReplayableBody for Empty<Bytes> {
    fn into_memory(self) -> Result<Bytes, Self> {
        Ok(Bytes::new())
    }

    fn from_memory(_: Bytes) -> Self {
        Self::new()
    }
}

impl<E: Send + Sync + 'static> ReplayableBody for BoxBody<Bytes, E> {
    fn into_memory(self) -> Result<Bytes, Self> {
        in_memory(self, Self::new)
    }

    fn from_memory(content: Bytes) -> Self {
        Full::new(content).map_err(|never| match never {}).boxed()
    }
}

impl<E: Send + 'static> ReplayableBody for UnsyncBoxBody<Bytes, E> {
    fn into_memory(self) -> Result<Bytes, Self> {
        in_memory(self, Self::new)
    }

    fn from_memory(content: Bytes) -> Self {
        Full::new(content)
            .map_err(|never| match never {})
            .boxed_unsync()
    }
}

// axum and tonic take a box of their own error type as it is: one box, and no error in an error.

#[cfg(feature = "axum-08")]
impl ReplayableBody for axum_core::body::Body {
    fn into_memory(self) -> Result<Bytes, Self> {
        in_memory(self, |unread| Self::new(UnsyncBoxBody::new(unread)))
    }

    fn from_memory(content: Bytes) -> Self {
        Self::from(content)
    }
}

#[cfg(feature = "tonic-014")]
impl ReplayableBody for tonic::body::Body {
    fn into_memory(self) -> Result<Bytes, Self> {
        in_memory(self, |unread| Self::new(UnsyncBoxBody::new(unread)))
    }

    fn from_memory(content: Bytes) -> Self {
        Self::new(Full::new(content))
    }
}

#[cfg(feature = "reqwest-013")]
impl ReplayableBody for reqwest::Body {
    fn into_memory(self) -> Result<Bytes, Self> {
        in_memory(self, Self::wrap)
    }

    fn from_memory(content: Bytes) -> Self {
        Self::from(content)
    }
}

#[cfg(test)]
mod tests;
