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
/// The head is cloned, and the bytes of a body in memory are shared. A body that streams is recorded frame by frame
/// while the first attempt sends it. A further attempt sends the recorded frames, and then reads the stream together
/// with the attempts that are still sending it. Each attempt that is not interrupted receives every frame. A stalled
/// attempt delays no other attempt. When no further attempt can follow, frames that every attempt has read are freed.
///
/// When an attempt in flight has read more than the [limit](Self::save), the request can usually not be resent. One
/// attempt, usually the oldest in flight, then continues with the body. The other attempts are
/// [`Interrupted`](crate::Interrupted). If the body fails, one attempt, usually the oldest in flight, receives the
/// error, and the other attempts are interrupted.
///
/// The type of a body, such as `BoxBody`, can hide whether the content is in memory. If such a body knows its exact
/// size, it is usually polled once before it is sent, to find this out. A [`ReplayBody`](crate::ReplayBody) is not
/// polled. No body is polled if the request has an `Expect` header, because the first poll must wait for the server's
/// `100 Continue`. Apart from this poll, nothing is read ahead. A request with an `Upgrade` header is sent once,
/// because its connection is about to change its protocol.
///
/// Extra attempts carry their [`Attempt`] in the request's extensions. `reqwest::Request` keeps its extensions private,
/// so its attempts carry none.
///
/// # Cost
///
/// For an `http::Request`, usually one allocation for the list of header fields, and a clone of the extensions. A body
/// in memory may take one or two more allocations. A body that streams takes about three more allocations and the list of
/// its frames, and each poll of the body takes a few locks.
pub trait ReplayableRequest: HttpRequest + Sized {
    /// The copy from which further attempts are made.
    type Saved;

    /// Prepares the request for its first attempt, and returns the copy for further attempts. `None` means that the
    /// request cannot be resent.
    ///
    /// Records up to `limit` bytes of a body that streams, and usually at most one more frame. A data frame counts as
    /// its length, but at least as 64 bytes on a 64-bit target. So the data frames within the limit take at most about
    /// twice the limit in memory. A frame that is a slice of a larger buffer also keeps this buffer.
    ///
    /// With a limit of 0, a body that streams can usually be resent only if none of it was read.
    fn save(&mut self, limit: usize) -> Option<Self::Saved>;

    /// Makes the request of `attempt`, and keeps `saved` for later attempts. `None` means that this attempt cannot be
    /// made, for example if another attempt in flight has its number.
    fn again(saved: &Self::Saved, attempt: Attempt) -> Option<Self>;

    /// Notes that the outcome of an attempt is known, or that its request is about to be sent. If `is_over` is true, the
    /// caller does not receive the attempt's response, so all other attempts have precedence for the rest of the body.
    /// Returns whether the attempt was interrupted. Its outcome then depends on the interruption, not on the service.
    fn attempt_ended(saved: &Self::Saved, attempt: Attempt, is_over: bool) -> bool;
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
            // The body has no content. If its size hint does not say so, an empty body replaces it.
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

    fn attempt_ended(saved: &Self::Saved, attempt: Attempt, is_over: bool) -> bool {
        saved.content.attempt_ended(attempt, is_over)
    }
}

#[cfg(test)]
mod tests;
