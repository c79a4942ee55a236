use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::Interrupted;
use super::frame::Recorded;
use super::readers::Id;
use super::record::{Leftovers, Next, Record, State};

/// Reads the recorded frames, then the source.
///
/// No reader polls the source for another one, so a reader that stalls holds up none.
pub(super) struct Reader<B, E> {
    record: Arc<Record<B, E>>,
    id: Id,
    /// The number of bytes of data that it gave.
    read: u64,
    /// It gave its end, or its error.
    finished: bool,
}

/// The source of further readers. Without it nothing is recorded.
pub(super) struct Recording<B, E>(Arc<Record<B, E>>);

type Polled<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

/// Records a source, up to `limit` bytes: the first reader, and the source of further ones.
pub(super) fn record<B: Body, E>(source: B, limit: usize) -> (Reader<B, E>, Recording<B, E>) {
    let (record, id) = Record::new(source, limit);
    let record = Arc::new(record);
    (Reader::new(Arc::clone(&record), id), Recording(record))
}

impl<B, E> Recording<B, E> {
    /// A reader of the whole record; `None` if the record is not whole.
    ///
    /// `others_ended`: all earlier attempts have ended. `is_mute`: the reader's client cannot be told that the reader is
    /// interrupted.
    pub(super) fn read_again(&self, others_ended: bool, is_mute: bool) -> Option<Reader<B, E>> {
        let id = self.0.lock().join(others_ended, is_mute)?;
        Some(Reader::new(Arc::clone(&self.0), id))
    }
}

impl<B, E> fmt::Debug for Recording<B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").finish_non_exhaustive()
    }
}

impl<B, E> Drop for Recording<B, E> {
    fn drop(&mut self) {
        let leftovers = self.0.lock().close();
        // Not before the lock is free.
        drop(leftovers);
    }
}

impl<B, E> Reader<B, E>
where
    B: Body<Data = Bytes, Error = E> + Unpin,
    E: From<Interrupted>,
{
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled<E> {
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
        // Before the poll: a wake while or after the source is polled finds this reader registered.
        let replaced = state.waiting.register(self.id, cx.waker());
        let wakers = state.waiting.shared().filter(|_| !state.is_alone());
        let source = state.take_source();
        drop(state);
        drop(replaced);
        if source.is_none() {
            // The reader that polls the source wakes this one when the source comes back.
            return Poll::Pending;
        }
        let all = wakers.map(Waker::from);
        let mut cx = Context::from_waker(all.as_ref().unwrap_or(cx.waker()));
        let (record, id) = (&*self.record, self.id);
        match (Polling { record, id, source }).poll(&mut cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(next) => self.give(next),
        }
    }

    fn give(&mut self, next: Next<E>) -> Polled<E> {
        let last = match next {
            Next::Give(frame) => {
                let read = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.read = self.read.saturating_add(read);
                return Poll::Ready(Some(Ok(frame)));
            }
            Next::End => None,
            Next::Failed(error) => Some(Err(error)),
            Next::Interrupted | Next::PollSource => Some(Err(Interrupted.into())),
        };
        self.finished = true;
        Poll::Ready(last)
    }
}

impl<B, E> Reader<B, E> {
    fn new(record: Arc<Record<B, E>>, id: Id) -> Self {
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

impl<B, E> Drop for Reader<B, E> {
    fn drop(&mut self) {
        let leftovers = self.record.lock().leave(self.id);
        // Not before the lock is free.
        drop(leftovers);
    }
}

/// A source that one reader has taken out of the record to poll it.
struct Polling<'a, B, E> {
    record: &'a Record<B, E>,
    id: Id,
    /// `None` after the poll.
    source: Option<B>,
}

impl<B, E> Polling<'_, B, E>
where
    B: Body<Data = Bytes, Error = E> + Unpin,
{
    fn poll(mut self, cx: &mut Context<'_>) -> Poll<Next<E>> {
        let Some(source) = &mut self.source else {
            return Poll::Pending;
        };
        let polled = Pin::new(&mut *source).poll_frame(cx);
        let ended = match &polled {
            Poll::Pending | Poll::Ready(Some(Err(_))) => false,
            Poll::Ready(Some(Ok(_))) => source.is_end_stream(),
            Poll::Ready(None) => true,
        };
        let (id, source) = (self.id, self.source.take());
        let Poll::Ready(polled) = polled else {
            let mut state = self.record.lock();
            // A source that has not ended leaves nothing over.
            let _ = state.put_back(source, false);
            let wakers = state.waiting.shared().filter(|_| state.is_missed());
            drop(state);
            if let Some(wakers) = wakers {
                wakers.wake_others(id);
            }
            return Poll::Pending;
        };
        let frame = polled.map(|polled| polled.map(Recorded::new));
        let (next, _leftovers, _source) = self.update(|state| match frame {
            None => (
                Next::End,
                Leftovers::source(None),
                state.put_back(source, true),
            ),
            Some(Err(error)) => {
                let (next, leftovers) = state.fail(id, error);
                (next, leftovers, Leftovers::source(source))
            }
            Some(Ok(frame)) => {
                let (next, leftovers) = match frame {
                    Ok(frame) => state.record(id, frame),
                    // No other reader can have it.
                    Err(frame) => (Next::Give(frame), state.go_on_with(id)),
                };
                (next, leftovers, state.put_back(source, ended))
            }
        });
        Poll::Ready(next)
    }
}

impl<B, E> Polling<'_, B, E> {
    /// Records the outcome of the poll, then wakes the other readers.
    fn update<T>(&self, change: impl FnOnce(&mut State<B, E>) -> T) -> T {
        let mut state = self.record.lock();
        let changed = change(&mut state);
        let wakers = state.waiting.shared();
        drop(state);
        if let Some(wakers) = wakers {
            wakers.wake_others(self.id);
        }
        changed
    }
}

/// The source panicked.
impl<B, E> Drop for Polling<'_, B, E> {
    fn drop(&mut self) {
        if let Some(source) = self.source.take() {
            let leftovers = self.update(State::abort);
            drop((leftovers, source));
        }
    }
}
