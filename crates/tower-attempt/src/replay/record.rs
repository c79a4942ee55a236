use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::Interrupted;
use super::frame::Recorded;
use super::wakers::{ReaderId, Wakers};
use crate::{Attempt, AttemptKind};

#[derive(Debug)]
struct ReaderState {
    id: ReaderId,
    /// The index of the reader's next frame among the recorded frames.
    position: usize,
    /// Whether the reader's attempt is known to have ended without a response for the caller. The client may still read
    /// the body, to keep the connection usable.
    over: bool,
}

/// A source and its recorded frames, shared by its readers and by the saved request.
///
/// No foreign code runs under the lock, except the clone of a waker. A reader takes the source out of the record, polls
/// it without the lock, and puts it back unless it ended, failed or panicked. A reader that finds the source taken
/// registers its waker and waits. Values whose drop may run foreign code are moved out of the lock first. So neither a
/// source that wakes while it is polled nor a source whose drop touches the readers can deadlock.
pub(super) struct BodyRecord<B, E> {
    /// The size hint of the source before it was read.
    pub(super) size: SizeHint,
    state: Mutex<RecordState<B, E>>,
}

/// The output of a poll that is ready.
pub(super) type Item<E> = Option<Result<Frame<Bytes>, E>>;

impl<B: Body, E> BodyRecord<B, E> {
    /// Makes a record of `source`. `limit` is the replay limit, in bytes.
    pub(super) fn new(source: B, limit: usize) -> Self {
        Self {
            size: source.size_hint(),
            state: Mutex::new(RecordState {
                source: Some(source),
                error: None,
                missed: false,
                ended: false,
                saved: true,
                frames: VecDeque::new(),
                recorded: 0,
                limit,
                readers: Vec::new(),
                interrupted: Vec::new(),
                lone_waker: None,
                wakers: None,
                waking: None,
                old_frames: VecDeque::new(),
                old_source: None,
                old_waker: None,
            }),
        }
    }
}

impl<B, E> BodyRecord<B, E> {
    /// Changes the state under the lock. Then, without the lock, wakes readers and drops old values.
    ///
    /// Wakes before it drops, because a source whose drop panics or takes long must not keep the other readers asleep.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut RecordState<B, E>) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut state);
        let frames = mem::take(&mut state.old_frames);
        let old = (frames, state.old_source.take(), state.old_waker.take());
        let waking = state.waking.take();
        let waking = waking.and_then(|id| Some((id, state.wakers.clone()?)));
        drop(state);
        if let Some((id, wakers)) = waking {
            wakers.wake_others(id);
        }
        drop(old);
        changed
    }
}

/// The state behind the lock of a record. No method polls a source, wakes a reader, or drops a source or a waker, since
/// that can run a user's code.
pub(super) struct RecordState<B, E> {
    /// `None` while a reader polls it, and after it has ended, failed, panicked or been freed.
    source: Option<B>,
    /// The id of the reader that is to receive the source's error, and that error.
    error: Option<(ReaderId, E)>,
    /// Whether a reader wanted to poll the source while another reader had taken it.
    missed: bool,
    ended: bool,
    /// Whether further readers may join. If so, the record keeps all frames.
    saved: bool,
    /// The recorded frames that a reader may still need.
    frames: VecDeque<Recorded>,
    /// The cost of all frames that were recorded so far, in bytes, freed ones included. So the limit does not depend on
    /// the speed of the readers.
    recorded: usize,
    /// If a frame makes `recorded` exceed this number of bytes, at most one of the readers continues.
    limit: usize,
    /// The oldest first. A reader that was dropped or interrupted is not among them.
    readers: Vec<ReaderState>,
    /// The readers that were interrupted.
    interrupted: Vec<ReaderId>,
    /// The waker of the only reader. The source may hold a clone of this waker.
    lone_waker: Option<(ReaderId, Waker)>,
    /// The wakers of the readers that wait. `None` until a reader joins while another one exists. From then on the
    /// source is polled with this set as its waker.
    wakers: Option<Arc<Wakers>>,
    /// Set if readers have to be woken: all of them except this one, which polled the source.
    waking: Option<ReaderId>,
    // Values to be dropped while no lock is held.
    old_frames: VecDeque<Recorded>,
    old_source: Option<B>,
    old_waker: Option<Waker>,
}

/// The next step of a reader.
pub(super) enum Next<B, E> {
    Give(Item<E>),
    /// The source to poll, and the waker to poll it with. Without a waker, the reader uses its own. Without a source,
    /// the reader waits, because another reader is polling the source.
    Poll(Option<B>, Option<Waker>),
}

impl<B, E> RecordState<B, E> {
    /// Adds the reader of `attempt`, unless further readers are forbidden or this attempt has a reader. All attempts
    /// before a retry have ended.
    ///
    /// `is_mute` is true if the body's error type cannot express an interruption. After an interruption, a body with
    /// such an error type stays pending forever, so its attempt may never end. So a mute reader joins only if the
    /// attempt is a retry, the source has ended, or no other reader exists.
    pub(super) fn join(&mut self, attempt: Attempt, is_mute: bool) -> Option<ReaderId> {
        let others_ended = attempt.kind() == AttemptKind::Retry;
        let is_safe = others_ended || self.ended || self.readers.is_empty();
        let id = attempt.number();
        let is_used = self.interrupted.contains(&id) || self.reader(id).is_some();
        if !self.saved || is_used || is_mute && !is_safe {
            return None;
        }
        if others_ended {
            self.readers
                .iter_mut()
                .for_each(|reader| reader.over = true);
        }
        if !self.readers.is_empty() && self.wakers.is_none() {
            let wakers = Wakers::default();
            wakers.lock().extend(self.lone_waker.take());
            self.wakers = Some(Arc::new(wakers));
        }
        self.readers.push(ReaderState {
            id,
            position: 0,
            over: false,
        });
        Some(id)
    }

    /// Removes a reader that is dropped.
    pub(super) fn leave(&mut self, id: ReaderId) {
        self.readers.retain(|reader| reader.id != id);
        self.old_waker = match &self.wakers {
            Some(wakers) => wakers.lock().remove(&id),
            None => {
                let own = self.lone_waker.take_if(|(reader, _)| *reader == id);
                own.map(|(_, waker)| waker)
            }
        };
        self.trim();
    }

    /// Forbids further readers.
    pub(super) fn close(&mut self) {
        self.saved = false;
        self.trim();
    }

    /// Marks an attempt as ended if `is_over` is true. Returns whether the attempt was interrupted.
    pub(super) fn attempt_ended(&mut self, id: ReaderId, is_over: bool) -> bool {
        if let Some(reader) = self.reader(id) {
            reader.over |= is_over;
        }
        self.interrupted.contains(&id)
    }

    fn reader(&mut self, id: ReaderId) -> Option<&mut ReaderState> {
        self.readers.iter_mut().find(|reader| reader.id == id)
    }

    /// Returns the oldest reader whose attempt is not known to have ended.
    fn oldest_live(&self) -> Option<ReaderId> {
        let live = self.readers.iter().find(|reader| !reader.over);
        live.map(|reader| reader.id)
    }

    /// Removes all readers, and forbids further readers. `id` is the reader that polled the source. `receiver` gets the
    /// source's error.
    pub(super) fn abort(&mut self, id: ReaderId, receiver: Option<ReaderId>) {
        self.waking = Some(id);
        self.interrupt(|reader| Some(reader.id) == receiver);
        self.readers.clear();
        self.close();
    }

    /// Removes the readers for which `keeps` is false, and notes that their attempts were interrupted.
    fn interrupt(&mut self, keeps: impl Fn(&ReaderState) -> bool) {
        let removed = self.readers.iter().filter(|reader| !keeps(reader));
        self.interrupted.extend(removed.map(|reader| reader.id));
        self.readers.retain(keeps);
    }

    pub(super) fn is_ended(&self, id: ReaderId) -> bool {
        let mut readers = self.readers.iter();
        let has_all = readers.any(|reader| reader.id == id && reader.position == self.frames.len());
        self.ended && has_all
    }

    /// If no further reader may join, frees the frames that all readers have read. If also no reader remains, frees all
    /// frames and the source.
    fn trim(&mut self) {
        if self.saved {
            return;
        }
        let positions = self.readers.iter().map(|reader| reader.position);
        let Some(slowest) = positions.min() else {
            self.old_frames = mem::take(&mut self.frames);
            // `old_source` may already hold a source that has failed.
            self.old_source = self.old_source.take().or(self.source.take());
            return;
        };
        self.old_frames.extend(self.frames.drain(..slowest));
        self.readers
            .iter_mut()
            .for_each(|reader| reader.position -= slowest);
    }
}

impl<B, E: From<Interrupted>> RecordState<B, E> {
    /// Gives a reader its next recorded frame, its error or the end of the body, whichever is available. If none is,
    /// registers `waker`, and takes out the source unless another reader is polling it.
    pub(super) fn next(&mut self, id: ReaderId, waker: &Waker) -> Next<B, E> {
        let Some(reader) = self.readers.iter_mut().find(|reader| reader.id == id) else {
            let error = self.error.take_if(|(receiver, _)| *receiver == id);
            let error = error.map_or_else(|| Interrupted.into(), |(_, error)| error);
            return Next::Give(Some(Err(error)));
        };
        if let Some(frame) = self.frames.get(reader.position).cloned() {
            reader.position += 1;
            self.trim();
            return Next::Give(Some(Ok(frame.into_frame())));
        }
        if self.ended {
            return Next::Give(None);
        }
        // The reader of an ended attempt has already added a frame beyond the limit. The reader of another ended
        // attempt must not add a second one.
        if self.saved && self.recorded > self.limit && self.oldest_live().is_none() {
            self.interrupt(|reader| reader.id != id);
            return Next::Give(Some(Err(Interrupted.into())));
        }
        // Registered before the poll, so that a wake during or after the poll reaches this reader.
        self.old_waker = match &self.wakers {
            Some(wakers) => wakers.lock().insert(id, waker.clone()),
            None => {
                let replaced = self.lone_waker.replace((id, waker.clone()));
                replaced.map(|(_, waker)| waker)
            }
        };
        let source = self.source.take();
        self.missed = source.is_none();
        Next::Poll(source, self.wakers.clone().map(Waker::from))
    }

    /// Takes back the source that reader `id` polled, with the result of the poll. Returns the result for this reader.
    pub(super) fn settle(
        &mut self,
        id: ReaderId,
        source: Option<B>,
        polled: Poll<Item<E>>,
        ended: bool,
    ) -> Poll<Item<E>> {
        // Wakes the other readers if there is a result, or if one of them found the source taken during this poll. That
        // reader must poll for itself: the source may hold only the waker of reader `id`, and reader `id` can be
        // dropped.
        self.waking = Some(id).filter(|_| polled.is_ready() || self.missed);
        let failed = matches!(polled, Poll::Ready(Some(Err(_))));
        self.ended |= ended;
        match ended || failed {
            true => self.old_source = source,
            false => self.source = source,
        }
        polled.map(|item| {
            Some(match item? {
                Ok(frame) => self.record(id, frame),
                Err(error) => self.fail(id, error),
            })
        })
    }

    /// Records the frame that reader `id` got from the source, if another reader may need it and the frame can be
    /// copied.
    fn record(&mut self, id: ReaderId, frame: Frame<Bytes>) -> Result<Frame<Bytes>, E> {
        if !self.saved && self.readers.len() < 2 {
            return Ok(frame);
        }
        let (frame, winner) = match Recorded::new(frame) {
            Ok(frame) => {
                self.recorded = self.recorded.saturating_add(frame.cost());
                self.frames.push_back(frame.clone());
                if let Some(reader) = self.reader(id) {
                    reader.position += 1;
                }
                if self.recorded <= self.limit {
                    return Ok(frame.into_frame());
                }
                (frame.into_frame(), self.winner())
            }
            // A frame of an unknown kind cannot be copied, so only this reader continues.
            Err(frame) => (frame, Some(id)),
        };
        self.interrupt(|reader| Some(reader.id) == winner);
        self.saved &= winner.is_none();
        self.trim();
        match winner == Some(id) {
            true => Ok(frame),
            false => Err(Interrupted.into()),
        }
    }

    /// Returns the reader that continues with the body after the limit is exceeded: the oldest reader whose attempt is
    /// not known to have ended.
    ///
    /// Without such a reader, only HTTP clients of ended attempts still read the body, probably to keep their
    /// connections usable. If a further attempt may join, the result is then `None`, which interrupts all readers. If
    /// none may join, the result is the oldest reader.
    fn winner(&self) -> Option<ReaderId> {
        let oldest = self.readers.first().filter(|_| !self.saved);
        self.oldest_live().or(oldest.map(|reader| reader.id))
    }

    /// Ends the body for all readers after reader `id` got an error from the source. One reader receives the error, and
    /// the others are interrupted.
    ///
    /// The receiver is the oldest reader whose attempt is not known to have ended, or else reader `id`. If all attempts
    /// of a race fail, the caller usually gets the failure of the oldest attempt, which should name the cause.
    fn fail(&mut self, id: ReaderId, error: E) -> Result<Frame<Bytes>, E> {
        let oldest = self.oldest_live().unwrap_or(id);
        self.abort(id, Some(oldest));
        if oldest == id {
            return Err(error);
        }
        self.error = Some((oldest, error));
        Err(Interrupted.into())
    }
}
