mod leftovers;
mod state;

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http_body::{Body, SizeHint};

pub(super) use self::leftovers::Leftovers;
pub(super) use self::state::{Next, State};
use super::ReplayBody;
use super::readers::Id;

/// A source and what has been read of it, shared by its readers and by the saved request.
///
/// Nobody else's code runs under the lock, except the clone of a waker. Whoever polls the source
/// takes it out, polls it and puts it back; who finds it gone registers its waker and waits. What
/// has to be dropped comes out as [`Leftovers`]. So neither a source that wakes while it is polled
/// nor one whose drop touches the readers can deadlock.
pub(super) struct Record<S: Body> {
    /// What the source said before it was read.
    pub(super) size: SizeHint,
    state: Mutex<State<S>>,
}

impl<S: Body<Data = Bytes> + Unpin> Record<S> {
    /// The record, and its first reader.
    pub(super) fn new(source: ReplayBody<S>, limit: usize) -> (Self, Id) {
        let size = source.size_hint();
        let (state, first) = State::new(source, limit);
        let state = Mutex::new(state);
        (Self { size, state }, first)
    }
}

impl<S: Body> Record<S> {
    pub(super) fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
