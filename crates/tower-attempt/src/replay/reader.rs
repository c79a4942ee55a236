use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, SizeHint};

use super::Interrupted;
use super::record::{BodyRecord, Item, Next};
use super::wakers::ReaderId;
use crate::Attempt;

/// Reads the recorded frames of a body, then its source: the original body.
///
/// Each reader polls the source for itself, so a reader that stalls delays no other reader.
pub(super) struct Reader<B, E> {
    record: Arc<BodyRecord<B, E>>,
    id: ReaderId,
    /// The number of bytes of data that this reader has returned.
    read: u64,
    /// Whether this reader has returned the end of the body or an error.
    finished: bool,
}

/// Makes the readers of a record. The record keeps all frames while a further reader may join. After the `Recording` is
/// dropped, no further reader may join.
pub(super) struct Recording<B, E>(pub(super) Arc<BodyRecord<B, E>>);

impl<B: Body, E> Recording<B, E> {
    /// Makes a record of a source. `limit` is the replay limit, in bytes.
    pub(super) fn new(source: B, limit: usize) -> Self {
        Self(Arc::new(BodyRecord::new(source, limit)))
    }
}

impl<B, E> Recording<B, E> {
    /// Returns a reader that begins with the first frame. Returns `None` if no further reader may join. Also returns
    /// `None` for a mute reader, unless the attempt is a retry, the source has ended, or no other reader exists.
    ///
    /// `is_mute` is true if the body's error type cannot express an interruption.
    pub(super) fn reader(&self, attempt: Attempt, is_mute: bool) -> Option<Reader<B, E>> {
        let id = self.0.update(|state| state.join(attempt, is_mute))?;
        Some(Reader {
            record: Arc::clone(&self.0),
            id,
            read: 0,
            finished: false,
        })
    }
}

impl<B, E> fmt::Debug for Recording<B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").finish_non_exhaustive()
    }
}

impl<B, E> Drop for Recording<B, E> {
    fn drop(&mut self) {
        self.0.update(|state| state.close());
    }
}

impl<B, E> Reader<B, E>
where
    B: Body<Data = Bytes, Error = E> + Unpin,
    E: From<Interrupted>,
{
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Item<E>> {
        if self.finished {
            return Poll::Ready(None);
        }
        let (record, id) = (&*self.record, self.id);
        let item = match record.update(|state| state.next(id, cx.waker())) {
            Next::Give(item) => item,
            Next::Poll(source, waker) => {
                let waker = waker.as_ref().unwrap_or(cx.waker());
                ready!(Polling { record, id, source }.poll(&mut Context::from_waker(waker)))
            }
        };
        self.finished = !matches!(item, Some(Ok(_)));
        if let Some(Ok(frame)) = &item {
            let data = frame.data_ref().map_or(0, Bytes::len);
            self.read = self.read.saturating_add(data as u64);
        }
        Poll::Ready(item)
    }
}

impl<B, E> Reader<B, E> {
    pub(super) fn is_end_stream(&self) -> bool {
        self.finished || self.record.update(|state| state.is_ended(self.id))
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
        self.record.update(|state| state.leave(self.id));
    }
}

/// The poll of the source by one reader.
struct Polling<'a, B, E> {
    record: &'a BodyRecord<B, E>,
    id: ReaderId,
    /// The source, taken out of the record. `None` after the poll, or if another reader is polling the source.
    source: Option<B>,
}

impl<B, E> Polling<'_, B, E>
where
    B: Body<Data = Bytes, Error = E> + Unpin,
    E: From<Interrupted>,
{
    /// Polls the source unless another reader is polling it, and hands the result to the record.
    fn poll(mut self, cx: &mut Context<'_>) -> Poll<Item<E>> {
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
        self.record
            .update(|state| state.settle(id, source, polled, ended))
    }
}

impl<B, E> Drop for Polling<'_, B, E> {
    fn drop(&mut self) {
        // A source that is still here has panicked.
        if self.source.is_some() {
            self.record.update(|state| state.abort(self.id, None));
        }
    }
}
