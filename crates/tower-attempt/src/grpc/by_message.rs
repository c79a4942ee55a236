use http::Request;

use crate::{Attempt, ByBody, ReplayableBody, Replays};

/// Repeats gRPC calls: as [`ByBody`] does, since to HTTP a call is a request like any other. That it has
/// a type of its own says what a call's timeout looks like: a status in the response.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByMessage(ByBody);

impl ByMessage {
    /// Records up to `limit` bytes of what a call sends; see [`ByBody::with_limit`].
    #[must_use]
    pub const fn with_limit(limit: usize) -> Self {
        Self(ByBody::with_limit(limit))
    }
}

impl<B: ReplayableBody> Replays<Request<B>> for ByMessage {
    type Saved = <ByBody as Replays<Request<B>>>::Saved;

    #[inline]
    fn first(&self, request: &mut Request<B>) -> Option<Self::Saved> {
        self.0.first(request)
    }

    fn again(&self, saved: &Self::Saved, attempt: Attempt) -> Option<Request<B>> {
        self.0.again(saved, attempt)
    }

    fn last(&self, saved: Self::Saved, attempt: Attempt) -> Option<Request<B>> {
        self.0.last(saved, attempt)
    }
}
