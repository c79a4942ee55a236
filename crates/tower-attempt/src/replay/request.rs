#[cfg(feature = "reqwest-013")]
mod reqwest;
mod saved;

use bytes::Bytes;
use http::Request;
use http::header::EXPECT;

use self::saved::{Content, SavedRequest};
use super::ReplayableBody;
use crate::{Attempt, HttpRequest};

/// An HTTP request that can be resent, with a body that is in memory or that streams.
///
/// The head is cloned. The bytes of a body in memory are shared. A body that streams is recorded
/// frame by frame while the first attempt sends it; nothing is read ahead. A further attempt sends
/// the recorded frames and then goes on with the stream, in step with attempts that still send it. Each
/// attempt gets every frame, and an attempt that stalls holds up no other. Recording stops once no copy of the
/// request remains to be sent. Frames that every attempt has read are then freed.
///
/// Once an attempt has read more of a body than the [limit](Self::save), the request can't be resent any more. The
/// oldest attempt in flight goes on with the body, and the others are [`Interrupted`](crate::Interrupted). If the body
/// fails, the oldest attempt in flight receives the error, and the others are interrupted.
///
/// A body that hides its content is polled once if it knows its exact size, to see whether it is
/// in memory. It is not polled if the request has `Expect`, because the client waits for the first poll. A
/// request with `Upgrade` is sent once: its connection is about to change its protocol.
///
/// Extra attempts carry their [`Attempt`] in the request's extensions, except for `reqwest::Request`, which keeps its
/// extensions private.
///
/// # Cost
///
/// One allocation for the header fields, which are kept as a list until a copy is sent. For a body that
/// streams: two more, the list of the frames, and a lock around each frame.
pub trait ReplayableRequest: HttpRequest + Sized {
    /// The copy from which further attempts are made.
    type Saved;

    /// Prepares the request for its first attempt. `None` means that it can't be resent.
    ///
    /// Records up to `limit` bytes of a body that streams, and one frame more when attempts overlap.
    /// A frame counts its content, and at least 64 bytes, so a record takes at most twice the limit. With 0, a body
    /// that streams can be resent as long as nothing of it was sent.
    fn save(&mut self, limit: usize) -> Option<Self::Saved>;

    /// Makes a copy for `attempt`, while more may follow. `None` means that the request can't be
    /// resent any more.
    fn again(saved: &Self::Saved, attempt: Attempt) -> Option<Self>;

    /// Makes the copy for the last attempt.
    fn last(saved: Self::Saved, attempt: Attempt) -> Option<Self> {
        Self::again(&saved, attempt)
    }
}

impl<B: ReplayableBody> ReplayableRequest for Request<B> {
    type Saved = SavedRequest<B::Source>;

    #[inline]
    fn save(&mut self, limit: usize) -> Option<SavedRequest<B::Source>> {
        let body = self.body();
        let content = if !body.is_end_stream() {
            let is_expected = self.headers().contains_key(EXPECT);
            Content::of(self.body_mut(), is_expected, limit)
        } else {
            // A body that streams nothing is as empty in each attempt as in the others.
            if body.size_hint().exact() != Some(0) {
                *self.body_mut() = B::default();
            }
            Content::Memory(Bytes::new())
        };
        Some(SavedRequest::new(self, content))
    }

    fn again(saved: &SavedRequest<B::Source>, attempt: Attempt) -> Option<Self> {
        saved.request(attempt)
    }
}

#[cfg(test)]
mod tests;
