use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::polling::Polling;
use super::readers::Id;
use super::record::{Next, Record};
use super::{Recording, ReplayBody, ReplayError};

/// Reads what is recorded, then the source.
///
/// Nobody polls the source for another reader, so that one that stalls holds up none.
pub(super) struct Reader<S: Body> {
    record: Arc<Record<S>>,
    id: Id,
    /// How many bytes of data it has given.
    read: u64,
    /// It gave its end, or its error.
    finished: bool,
}

type Polled<E> = Poll<Option<Result<Frame<Bytes>, ReplayError<E>>>>;

impl<S: Body<Data = Bytes> + Unpin> Reader<S> {
    /// Records a source, up to `limit` bytes.
    pub(super) fn first(source: ReplayBody<S>, limit: usize) -> (Self, Recording<S>) {
        let (record, id) = Record::new(source, limit);
        let record = Arc::new(record);
        let recording = Recording::new(Arc::clone(&record));
        (Self::new(record, id), recording)
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled<S::Error> {
        if self.finished {
            return Poll::Ready(None);
        }
        let mut state = self.record.lock();
        match state.next(self.id) {
            Next::PollSource => {}
            next => {
                drop(state);
                return self.give(next);
            }
        }
        // Before the poll: what wakes while or after the source is polled finds it registered.
        let replaced = state.waiting.register(self.id, cx.waker());
        let wakers = state.waiting.shared().filter(|_| !state.is_alone());
        let source = state.take_source();
        drop(state);
        drop(replaced);
        // Gone: whoever polls it wakes this reader when it comes back.
        let Some(source) = source else {
            return Poll::Pending;
        };
        let all = wakers.map(Waker::from);
        let mut cx = Context::from_waker(all.as_ref().unwrap_or(cx.waker()));
        let polling = Polling::new(&self.record, self.id, source);
        match polling.poll(&mut cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(next) => self.give(next),
        }
    }

    fn give(&mut self, next: Next<S::Error>) -> Polled<S::Error> {
        Poll::Ready(match next {
            Next::Give(frame) => {
                let read = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.read = self.read.saturating_add(read);
                Some(Ok(frame))
            }
            Next::End => {
                self.finished = true;
                None
            }
            Next::Failed(error) => {
                self.finished = true;
                Some(Err(error))
            }
            Next::Interrupted | Next::PollSource => {
                self.finished = true;
                Some(Err(ReplayError::Interrupted))
            }
        })
    }
}

impl<S: Body> Reader<S> {
    pub(super) fn new(record: Arc<Record<S>>, id: Id) -> Self {
        Self {
            record,
            id,
            read: 0,
            finished: false,
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.finished || self.record.lock().is_ended(self.id)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_lower(self.record.size.lower().saturating_sub(self.read));
        if let Some(upper) = self.record.size.upper() {
            hint.set_upper(upper.saturating_sub(self.read));
        }
        hint
    }
}

impl<S: Body> Drop for Reader<S> {
    fn drop(&mut self) {
        let leftovers = self.record.lock().leave(self.id);
        // Not before the lock is free.
        drop(leftovers);
    }
}
