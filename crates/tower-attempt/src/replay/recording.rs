use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http_body::Body;

use super::reader::Reader;
use super::record::Record;
use super::{ReplayBody, ReplayableBody};
use crate::{Attempt, AttemptKind};

/// What further readers of a body that streams are made from. Without it nothing is recorded.
pub(super) struct Recording<S: Body> {
    record: Arc<Record<S>>,
}

impl<S: Body> Recording<S> {
    pub(super) fn new(record: Arc<Record<S>>) -> Self {
        Self { record }
    }
}

impl<S: Body<Data = Bytes> + Unpin> Recording<S> {
    /// The body for a further attempt, which as a `B` may not be able to say that it is interrupted. If
    /// the record is whole.
    pub(super) fn read_again<B>(&self, attempt: Attempt) -> Option<B>
    where
        B: ReplayableBody<Source = S>,
    {
        let others_ended = attempt.kind() == AttemptKind::Retry;
        let is_mute = !B::can_be_interrupted();
        let id = self.record.lock().join(others_ended, is_mute)?;
        let reader = Reader::new(Arc::clone(&self.record), id);
        Some(B::from_replay(ReplayBody::reader(reader)))
    }
}

impl<S: Body> fmt::Debug for Recording<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").finish_non_exhaustive()
    }
}

impl<S: Body> Drop for Recording<S> {
    fn drop(&mut self) {
        let leftovers = self.record.lock().close();
        // Not before the lock is free.
        drop(leftovers);
    }
}
