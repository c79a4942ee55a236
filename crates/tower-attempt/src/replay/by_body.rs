mod fields;
#[cfg(feature = "reqwest-013")]
mod reqwest;
mod saved;

use std::mem;

use http::Request;
use http::header::EXPECT;

use self::saved::{Content, SavedRequest, in_memory};
use super::{ReplayableBody, Replays};
use crate::Attempt;

/// The most that is recorded of a body: linkerd's default, in bytes.
const LIMIT: usize = 64 * 1024;

/// Repeats HTTP requests, with bodies that are in memory or that stream.
///
/// The head is cloned. The bytes of a body in memory are shared. A body that streams is recorded
/// frame by frame while the first attempt sends it; nothing is read ahead. A further attempt sends
/// what is recorded and then goes on with the stream, in step with attempts that still send it: each
/// gets every frame, and one that stalls holds up none. Nothing is recorded any more once the
/// request can't be repeated, and what everyone has read is freed.
///
/// A body that turns out to be longer than the [limit](Self::with_limit) can't be repeated from
/// then on. The oldest attempt that is in flight goes on with it, others are
/// [`Interrupted`](crate::Interrupted). An error of the body goes to the attempt that meets it and
/// interrupts the others.
///
/// A body that hides what it holds is polled once if it knows its exact size, to see whether it is
/// in memory; not if the request has `Expect`, since whoever sends it waits for the first poll. A
/// request with `Upgrade` is sent once: its connection is about to become something else.
///
/// Extra attempts carry their [`Attempt`] in the request's extensions. `reqwest::Request` keeps its
/// extensions private, so there they don't.
///
/// # Default
///
/// A limit of 64 KiB (linkerd's).
///
/// # Cost
///
/// One allocation for the header fields, which are kept as a list until a copy is sent. For a body that
/// streams: two more, the list of the frames, and a lock around each frame.
#[derive(Clone, Copy, Debug)]
pub struct ByBody {
    limit: usize,
}

impl ByBody {
    /// Records up to `limit` bytes of each body, and one frame more when attempts overlap.
    ///
    /// Each frame counts 64 bytes besides its content, for what it takes to keep it. With 0, a body
    /// that streams can be repeated as long as nothing of it was sent.
    ///
    /// ```
    /// use tower_attempt::ByBody;
    ///
    /// // Uploads are repeated too, at up to 10 MiB for each that is in flight.
    /// let replays = ByBody::with_limit(10 * 1024 * 1024);
    /// # let _ = replays;
    /// ```
    #[must_use]
    pub const fn with_limit(limit: usize) -> Self {
        Self { limit }
    }

    /// Looks for what a body that is not empty holds, and records it if it streams.
    fn content<B: ReplayableBody>(&self, request: &mut Request<B>) -> Content<B::Source> {
        // With `Expect: 100-continue` the sender waits for the first poll, and a look at a body that
        // hides what it holds is one.
        let is_expected = request.headers().contains_key(EXPECT);
        let body = mem::take(request.body_mut());
        let content = match is_expected {
            false => body.into_memory(),
            true => body.into_replay().into_memory(),
        };
        match content {
            Ok(content) => {
                *request.body_mut() = in_memory(content.clone());
                Content::Memory(content)
            }
            Err(body) => {
                let (body, recording) = body.record(self.limit);
                *request.body_mut() = B::from_replay(body);
                Content::Recorded(recording)
            }
        }
    }
}

impl Default for ByBody {
    fn default() -> Self {
        Self::with_limit(LIMIT)
    }
}

impl<B: ReplayableBody> Replays<Request<B>> for ByBody {
    type Saved = SavedRequest<B::Source>;

    #[inline]
    fn first(&self, request: &mut Request<B>) -> Option<SavedRequest<B::Source>> {
        let body = request.body();
        if body.is_end_stream() {
            // One that streams nothing is as empty in each attempt as in the others.
            if body.size_hint().exact() != Some(0) {
                *request.body_mut() = B::default();
            }
            return Some(SavedRequest::new(request));
        }
        let content = self.content(request);
        Some(SavedRequest {
            content,
            ..SavedRequest::new(request)
        })
    }

    fn again(&self, saved: &SavedRequest<B::Source>, attempt: Attempt) -> Option<Request<B>> {
        let body = saved.body(attempt)?;
        saved.head.clone().with(body, attempt)
    }

    fn last(&self, saved: SavedRequest<B::Source>, attempt: Attempt) -> Option<Request<B>> {
        let body = saved.body(attempt)?;
        saved.head.with(body, attempt)
    }
}

#[cfg(test)]
mod tests;
