mod native;
mod never;

use bytes::Bytes;
use http_body::Body;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Empty, Full};

use self::native::Native;
use self::never::Never;
use super::ReplayBody;
use super::unread::in_memory;

/// An HTTP body that can be sent again. Its default is the empty body.
///
/// Implemented for `Empty`, `Full`, `BoxBody` and `UnsyncBoxBody`, behind features
/// for `axum::body::Body`, `tonic::body::Body` and `reqwest::Body`, and for [`ReplayBody`], which
/// makes one of any other. A body in memory is shared; one that streams is recorded while it is
/// sent, see [`ReplayableRequest`](crate::ReplayableRequest).
///
/// An attempt that must break off in the middle of a stream, see
/// [`Interrupted`](crate::Interrupted), gives the body's own error. `BoxBody` and `UnsyncBoxBody`
/// can do so if their error is a boxed `Error + Send + Sync`, an `io::Error`, or one of axum's or
/// tonic's. With any other error type, such as hyper's, what streams is not hedged before all of it is
/// recorded, and a connection on which an attempt has failed stays pending when it does not get the rest,
/// as it must not end as if the body was complete.
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
    note = "to retry or hedge, use one of the bodies that implement `ReplayableBody`: `Full`, `Empty`, `BoxBody`, `UnsyncBoxBody`, or a framework's own, with the feature `axum-08`, `tonic-014` or `reqwest-013`",
    note = "any other body, such as a server's `Incoming`, can be sent again as a `ReplayBody`: put `map_request(|request| request.map(ReplayBody::new))` above the layer"
)]
pub trait ReplayableBody: Body<Data = Bytes> + Default {
    /// The body that streams: this type itself, if it is not a wrapper.
    type Source: Body<Data = Bytes> + Unpin;

    /// The whole content, if it is in memory; otherwise the body, unchanged for its reader.
    ///
    /// A type that hides what it holds is polled once if it knows its exact size: a body in memory
    /// gives all of its content at the first poll.
    ///
    /// # Errors
    ///
    /// Gives the body back when it is not, or not wholly, in memory.
    fn into_memory(self) -> Result<Bytes, ReplayBody<Self::Source>>;

    /// The body, not looked at.
    fn into_replay(self) -> ReplayBody<Self::Source>;

    /// A body with this content.
    fn from_memory(content: Bytes) -> Self;

    /// A body that reads what [`into_memory`](Self::into_memory) gave back, recorded or replayed.
    fn from_replay(body: ReplayBody<Self::Source>) -> Self;

    /// Whether an attempt that reads this body can be told that it does not get the rest. A hedge that can't
    /// is not sent as long as another attempt may cut it off.
    ///
    /// # Default
    ///
    /// `true`.
    #[must_use]
    fn can_be_interrupted() -> bool {
        true
    }
}

impl ReplayableBody for Full<Bytes> {
    type Source = Never;

    #[inline]
    fn into_memory(self) -> Result<Bytes, ReplayBody<Never>> {
        Ok(self.into_inner().unwrap_or_default())
    }

    fn into_replay(self) -> ReplayBody<Never> {
        ReplayBody::from_memory(self.into_inner().unwrap_or_default())
    }

    #[inline]
    fn from_memory(content: Bytes) -> Self {
        Self::new(content)
    }

    fn from_replay(body: ReplayBody<Never>) -> Self {
        Self::new(never::content(body))
    }
}

impl ReplayableBody for Empty<Bytes> {
    type Source = Never;

    fn into_memory(self) -> Result<Bytes, ReplayBody<Never>> {
        Ok(Bytes::new())
    }

    fn into_replay(self) -> ReplayBody<Never> {
        ReplayBody::default()
    }

    fn from_memory(_: Bytes) -> Self {
        Self::new()
    }

    fn from_replay(_: ReplayBody<Never>) -> Self {
        Self::new()
    }
}

impl<E: Send + Sync + 'static> ReplayableBody for BoxBody<Bytes, E> {
    type Source = Self;

    fn into_memory(self) -> Result<Bytes, ReplayBody<Self>> {
        in_memory(self)
    }

    fn into_replay(self) -> ReplayBody<Self> {
        ReplayBody::new(self)
    }

    fn from_memory(content: Bytes) -> Self {
        Full::new(content).map_err(|never| match never {}).boxed()
    }

    fn from_replay(body: ReplayBody<Self>) -> Self {
        Self::new(Native::new(body, native::interrupted))
    }

    fn can_be_interrupted() -> bool {
        native::interrupted::<E>().is_some()
    }
}

impl<E: Send + 'static> ReplayableBody for UnsyncBoxBody<Bytes, E> {
    type Source = Self;

    fn into_memory(self) -> Result<Bytes, ReplayBody<Self>> {
        in_memory(self)
    }

    fn into_replay(self) -> ReplayBody<Self> {
        ReplayBody::new(self)
    }

    fn from_memory(content: Bytes) -> Self {
        Full::new(content)
            .map_err(|never| match never {})
            .boxed_unsync()
    }

    fn from_replay(body: ReplayBody<Self>) -> Self {
        Self::new(Native::new(body, native::interrupted))
    }

    fn can_be_interrupted() -> bool {
        native::interrupted::<E>().is_some()
    }
}

// axum and tonic take a box of their own error type as it is: one box, and no error in an error.

#[cfg(feature = "axum-08")]
impl ReplayableBody for axum_core::body::Body {
    type Source = Self;

    fn into_memory(self) -> Result<Bytes, ReplayBody<Self>> {
        in_memory(self)
    }

    fn into_replay(self) -> ReplayBody<Self> {
        ReplayBody::new(self)
    }

    fn from_memory(content: Bytes) -> Self {
        Self::from(content)
    }

    fn from_replay(body: ReplayBody<Self>) -> Self {
        let body = Native::new(body, native::interrupted);
        Self::new(UnsyncBoxBody::new(body))
    }
}

#[cfg(feature = "tonic-014")]
impl ReplayableBody for tonic::body::Body {
    type Source = Self;

    fn into_memory(self) -> Result<Bytes, ReplayBody<Self>> {
        in_memory(self)
    }

    fn into_replay(self) -> ReplayBody<Self> {
        ReplayBody::new(self)
    }

    fn from_memory(content: Bytes) -> Self {
        Self::new(Full::new(content))
    }

    fn from_replay(body: ReplayBody<Self>) -> Self {
        let body = Native::new(body, native::interrupted);
        Self::new(UnsyncBoxBody::new(body))
    }
}

#[cfg(feature = "reqwest-013")]
impl ReplayableBody for reqwest::Body {
    type Source = Self;

    fn into_memory(self) -> Result<Bytes, ReplayBody<Self>> {
        in_memory(self)
    }

    fn into_replay(self) -> ReplayBody<Self> {
        ReplayBody::new(self)
    }

    fn from_memory(content: Bytes) -> Self {
        Self::from(content)
    }

    fn from_replay(body: ReplayBody<Self>) -> Self {
        Self::wrap(body)
    }
}

#[cfg(test)]
mod tests;
