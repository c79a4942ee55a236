use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::ReplayBody;
use super::frame::Recorded;
use super::readers::Id;
use super::record::{Next, Record, State};

/// A source that one reader has taken out of the record to poll it.
pub(super) struct Polling<'a, S: Body> {
    record: &'a Record<S>,
    reader: Id,
    /// `None` once the record has been told what came of the poll.
    source: Option<ReplayBody<S>>,
}

impl<'a, S: Body<Data = Bytes> + Unpin> Polling<'a, S> {
    pub(super) fn new(record: &'a Record<S>, reader: Id, source: ReplayBody<S>) -> Self {
        Self {
            record,
            reader,
            source: Some(source),
        }
    }

    pub(super) fn poll(mut self, cx: &mut Context<'_>) -> Poll<Next<S::Error>> {
        let Some(source) = &mut self.source else {
            return Poll::Pending;
        };
        let polled = Pin::new(&mut *source).poll_frame(cx);
        let ended = match &polled {
            Poll::Pending | Poll::Ready(Some(Err(_))) => false,
            Poll::Ready(Some(Ok(_))) => source.is_end_stream(),
            Poll::Ready(None) => true,
        };
        match polled {
            Poll::Pending => {
                self.pending();
                Poll::Pending
            }
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(self.frame(frame, ended)),
            Poll::Ready(Some(Err(error))) => {
                let (reader, _source) = (self.reader, self.source.take());
                let (next, _leftovers) = self.update(|state| state.fail(reader, error));
                Poll::Ready(next)
            }
            Poll::Ready(None) => {
                let source = self.source.take();
                drop(self.update(|state| state.put_back(source, true)));
                Poll::Ready(Next::End)
            }
        }
    }

    fn pending(&mut self) {
        let mut state = self.record.lock();
        // Nothing is left over of a source that has not ended.
        let _ = state.put_back(self.source.take(), false);
        let wakers = state.waiting.shared().filter(|_| state.is_missed());
        drop(state);
        if let Some(wakers) = wakers {
            wakers.wake_others(self.reader);
        }
    }

    fn frame(&mut self, frame: Frame<Bytes>, ended: bool) -> Next<S::Error> {
        let source = self.source.take();
        let reader = self.reader;
        let frame = Recorded::new(frame);
        let (next, _leftovers, _source) = self.update(|state| {
            let (next, leftovers) = match frame {
                Ok(frame) => state.record(reader, frame),
                // Nobody else can have it.
                Err(frame) => (Next::Give(frame), state.go_on_with(reader)),
            };
            (next, leftovers, state.put_back(source, ended))
        });
        next
    }

    /// Tells the record what came of the poll, then the other readers.
    fn update<T>(&self, change: impl FnOnce(&mut State<S>) -> T) -> T {
        update(self.record, self.reader, change)
    }
}

fn update<S: Body, T>(
    record: &Record<S>,
    reader: Id,
    change: impl FnOnce(&mut State<S>) -> T,
) -> T {
    let mut state = record.lock();
    let changed = change(&mut state);
    let wakers = state.waiting.shared();
    drop(state);
    if let Some(wakers) = wakers {
        wakers.wake_others(reader);
    }
    changed
}

/// The source panicked.
impl<S: Body> Drop for Polling<'_, S> {
    fn drop(&mut self) {
        if let Some(source) = self.source.take() {
            let leftovers = update(self.record, self.reader, State::abort);
            drop((leftovers, source));
        }
    }
}
