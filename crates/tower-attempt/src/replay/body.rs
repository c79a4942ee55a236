mod native;

use bytes::Bytes;
use http_body::Body;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Empty, Full};

use self::native::Native;
use super::ReplayBody;

/// An HTTP body that can be resent. `Default` returns the empty body.
///
/// These types implement it if their data is `Bytes`: `Empty`, `Full`, `BoxBody`, `UnsyncBoxBody` and [`ReplayBody`];
/// with features `axum::body::Body`, `tonic::body::Body` and `reqwest::Body`. Any other body that is `Unpin` and whose
/// data is `Bytes` can be wrapped in a [`ReplayBody`]. A body in memory is shared. A body that streams is recorded
/// while it is sent: see [`ReplayableRequest`](crate::ReplayableRequest).
///
/// If the body's error type can express an interruption, an attempt that is [`Interrupted`](crate::Interrupted) in the
/// middle of a stream receives an error of that type. `BoxBody` and `UnsyncBoxBody` can express it if their error is a
/// boxed `Error + Send + Sync`, an `io::Error`, an `Interrupted`, or with a feature the error of axum or tonic.
///
/// A `BoxBody` or `UnsyncBoxBody` with any other error type, such as hyper's, cannot express an interruption. With such
/// a type, a stream is usually hedged only after the whole stream is recorded. If an attempt is interrupted, its body
/// stays pending, because a body that ended early would look complete. The attempt's connection may then stay occupied.
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use tower_attempt::ReplayableBody;
///
/// let body = Full::new(Bytes::from_static(b"hello"));
/// assert_eq!(body.into_memory(true).unwrap(), "hello");
/// ```
#[diagnostic::on_unimplemented(
    message = "the body `{Self}` can't be resent",
    note = "to retry or hedge, use one of the bodies that implement `ReplayableBody`: `Full`, `Empty`, `BoxBody`, `UnsyncBoxBody`, or a framework's own, with the feature `axum-08`, `tonic-014` or `reqwest-013`",
    note = "wrap any other body, such as a server's `Incoming`, in a `ReplayBody`: put `map_request(|request| request.map(ReplayBody::new))` above the layer"
)]
pub trait ReplayableBody: Body<Data = Bytes> + Default {
    /// The type of the body from which a layer reads if the content is not in memory. For a [`ReplayBody`], it is the
    /// type of the wrapped body. For the other bodies listed above, it is the body's own type.
    type Source: Body<Data = Bytes> + Unpin;

    /// Returns the whole content, if it is in memory.
    ///
    /// A type that hides its content, such as `BoxBody`, usually polls the body once, if `may_poll` is true and the
    /// body knows its exact size. Such a body counts as in memory if this poll returns a data frame with all of its
    /// content and the body then reports its end.
    ///
    /// # Errors
    ///
    /// Returns the body unless all of its content is known to be in memory. The returned body still yields every frame,
    /// a polled one included.
    fn into_memory(self, may_poll: bool) -> Result<Bytes, ReplayBody<Self::Source>>;

    /// Makes a body with this content.
    fn from_memory(content: Bytes) -> Self;

    /// Makes a body of this type that reads `body`, a stream that a layer records or replays.
    fn from_replay(body: ReplayBody<Self::Source>) -> Self;

    /// Whether the body's error type can express that an attempt was interrupted. Also `true` for a body that is always
    /// in memory, because such a body is never interrupted. If `false`, a stream is usually hedged only after the whole
    /// stream is recorded. Before that, another attempt could exceed the replay limit. The hedge's body would then stay
    /// pending, because it could not report the interruption as an error.
    ///
    /// # Default
    ///
    /// `true`.
    #[must_use]
    fn can_be_interrupted() -> bool {
        true
    }
}

impl<S: Body<Data = Bytes> + Unpin> ReplayableBody for ReplayBody<S> {
    type Source = S;

    fn into_memory(self, _: bool) -> Result<Bytes, Self> {
        self.into_content()
    }

    fn from_memory(content: Bytes) -> Self {
        Self::memory(content)
    }

    fn from_replay(body: Self) -> Self {
        body
    }
}

/// Implements [`ReplayableBody`] for a body that is its own `Source`.
macro_rules! impl_replayable {
    ([$($generics:tt)*] $body:ty, $interruptible:expr, |$this:ident, $may_poll:ident| $into_memory:expr,
        |$content:ident| $from_memory:expr, |$replay:ident| $from_replay:expr $(,)?) => {
        impl<$($generics)*> ReplayableBody for $body {
            type Source = Self;

            #[inline]
            fn into_memory(self, $may_poll: bool) -> Result<Bytes, ReplayBody<Self>> {
                let $this = self;
                $into_memory
            }

            #[inline]
            fn from_memory($content: Bytes) -> Self {
                $from_memory
            }

            fn from_replay($replay: ReplayBody<Self>) -> Self {
                $from_replay
            }

            fn can_be_interrupted() -> bool {
                $interruptible
            }
        }
    };
    // For a body that streams, or that hides that it is in memory.
    ([$($generics:tt)*] $body:ty, $interruptible:expr, $($from:tt)*) => {
        impl_replayable!(
            [$($generics)*] $body,
            $interruptible,
            |body, may_poll| ReplayBody::look(body, may_poll),
            $($from)*
        );
    };
}

impl_replayable!(
    [] Full<Bytes>,
    true,
    |body, _may_poll| Ok(body.into_inner().unwrap_or_default()),
    |content| Self::new(content),
    |_body| Self::default(),
);

impl_replayable!(
    [] Empty<Bytes>,
    true,
    |_body, _may_poll| Ok(Bytes::new()),
    |_content| Self::new(),
    |_body| Self::default(),
);

impl_replayable!(
    [E: Send + Sync + 'static] BoxBody<Bytes, E>,
    native::interrupted::<E>().is_some(),
    |content| Full::new(content).map_err(|never| match never {}).boxed(),
    |body| Self::new(Native::new(body)),
);

impl_replayable!(
    [E: Send + 'static] UnsyncBoxBody<Bytes, E>,
    native::interrupted::<E>().is_some(),
    |content| Full::new(content).map_err(|never| match never {}).boxed_unsync(),
    |body| Self::new(Native::new(body)),
);

// axum's `Body::new` never boxes an `UnsyncBoxBody` with the error `axum_core::Error` again. tonic's never boxes one
// with the error `tonic::Status` again. So the body is boxed at most once, and its error is not wrapped.

#[cfg(feature = "axum-08")]
impl_replayable!(
    [] axum_core::body::Body,
    true,
    |content| Self::from(content),
    |body| Self::new(UnsyncBoxBody::new(Native::new(body))),
);

#[cfg(feature = "tonic-014")]
impl_replayable!(
    [] tonic::body::Body,
    true,
    |content| Self::new(Full::new(content)),
    |body| Self::new(UnsyncBoxBody::new(Native::new(body))),
);

#[cfg(feature = "reqwest-013")]
impl_replayable!(
    [] reqwest::Body,
    true,
    |content| Self::from(content),
    |body| Self::wrap(body),
);

#[cfg(test)]
mod tests;
