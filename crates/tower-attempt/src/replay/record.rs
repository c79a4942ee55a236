use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::frame::Recorded;
use super::readers::{Id, Readers};
use super::tape::Tape;
use super::wakers::Waiting;

/// A source and the frames that were read of it, shared by its readers and by the saved request.
///
/// No foreign code runs under the lock, except the clone of a waker. A reader that polls the source takes it out, polls it
/// and puts it back. A reader that finds the source gone registers its waker and waits. Values to be dropped come out as
/// [`Leftovers`]. So neither a source that wakes while it is polled nor a source whose drop touches the readers can
/// deadlock.
pub(super) struct Record<B, E> {
    /// The size hint of the source before it was read.
    pub(super) size: SizeHint,
    state: Mutex<State<B, E>>,
}

impl<B: Body, E> Record<B, E> {
    /// The record, and its first reader.
    pub(super) fn new(source: B, limit: usize) -> (Self, Id) {
        let size = source.size_hint();
        let mut readers = Readers::new();
        let first = readers.add();
        let state = Mutex::new(State {
            source: Some(source),
            error: None,
            missed: false,
            ended: false,
            tape: Tape::new(limit),
            readers,
            waiting: Waiting::Alone(None),
            saved: true,
        });
        (Self { size, state }, first)
    }
}

impl<B, E> Record<B, E> {
    pub(super) fn lock(&self) -> MutexGuard<'_, State<B, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Values to be dropped while no lock is held.
#[must_use]
#[expect(dead_code, reason = "the fields are dropped, and never read")]
pub(super) struct Leftovers<B> {
    pub(super) frames: VecDeque<Recorded>,
    pub(super) source: Option<B>,
    pub(super) waker: Option<Waker>,
}

impl<B> Leftovers<B> {
    pub(super) fn source(source: Option<B>) -> Self {
        Self {
            frames: VecDeque::new(),
            source,
            waker: None,
        }
    }
}

/// The state behind the lock of a record. No method polls, wakes or drops foreign values.
pub(super) struct State<B, E> {
    /// `None` while a reader polls it, and when it has ended or failed.
    source: Option<B>,
    /// The error of the source, until the reader with this id receives it.
    error: Option<(Id, E)>,
    /// A reader wanted to poll the source while it was gone.
    missed: bool,
    ended: bool,
    tape: Tape,
    readers: Readers,
    pub(super) waiting: Waiting,
    /// Further readers may come. Until then the tape is whole.
    saved: bool,
}

/// What a reader does next.
pub(super) enum Next<E> {
    Give(Frame<Bytes>),
    End,
    Failed(E),
    Interrupted,
    PollSource,
}

impl<B, E> State<B, E> {
    /// Another reader, if the record is whole. `others_ended`: all earlier attempts are over.
    ///
    /// One that `is_mute` would wait for ever if it was interrupted, so there is none while an earlier attempt
    /// may still cut it off.
    pub(super) fn join(&mut self, others_ended: bool, is_mute: bool) -> Option<Id> {
        let is_safe = others_ended || self.ended || self.readers.is_empty();
        if !self.saved || is_mute && !is_safe {
            return None;
        }
        if others_ended {
            self.readers.end_all();
        }
        if !self.readers.is_empty() {
            self.waiting.share();
        }
        Some(self.readers.add())
    }

    /// A reader is dropped.
    pub(super) fn leave(&mut self, id: Id) -> Leftovers<B> {
        self.readers.remove(id);
        Leftovers {
            waker: self.waiting.forget(id),
            ..self.trim()
        }
    }

    /// No further readers will come.
    pub(super) fn close(&mut self) -> Leftovers<B> {
        self.saved = false;
        self.trim()
    }

    /// The source failed while this reader polled it, so no reader can have the rest.
    ///
    /// The oldest live attempt receives the error: if all attempts of a call fail, the caller gets the failure of the
    /// oldest, which should name the cause.
    pub(super) fn fail(&mut self, id: Id, error: E) -> (Next<E>, Leftovers<B>) {
        let oldest = self.readers.oldest_live().unwrap_or(id);
        let leftovers = self.abort();
        if oldest == id {
            return (Next::Failed(error), leftovers);
        }
        self.error = Some((oldest, error));
        (Next::Interrupted, leftovers)
    }

    /// Interrupts all readers, present and future ones.
    pub(super) fn abort(&mut self) -> Leftovers<B> {
        self.readers.clear();
        self.close()
    }

    pub(super) fn next(&mut self, id: Id) -> Next<E> {
        let Some(reader) = self.readers.get_mut(id) else {
            let error = self.error.take_if(|(receiver, _)| *receiver == id);
            return error.map_or(Next::Interrupted, |(_, error)| Next::Failed(error));
        };
        let position = reader.position;
        if self.tape.get(position).is_none() {
            return match self.ended {
                true => Next::End,
                false => Next::PollSource,
            };
        }
        reader.position += 1;
        // The last one who needs the frame gets the frame itself.
        let frame = match !self.saved && self.readers.slowest() > Some(position) {
            true => self.tape.pop(),
            false => self.tape.get(position).cloned(),
        };
        frame.map_or(Next::Interrupted, |frame| Next::Give(frame.into_frame()))
    }

    /// Whether no one but this reader could need what it reads.
    pub(super) fn is_alone(&self) -> bool {
        self.readers.is_alone()
    }

    pub(super) fn is_ended(&mut self, id: Id) -> bool {
        let end = self.tape.end();
        self.ended
            && self
                .readers
                .get_mut(id)
                .is_some_and(|reader| reader.position == end)
    }

    /// The source, which this reader took out, gave a frame.
    pub(super) fn record(&mut self, id: Id, frame: Recorded) -> (Next<E>, Leftovers<B>) {
        if !self.saved && self.is_alone() {
            // Nobody else needs it.
            return (Next::Give(frame.into_frame()), self.go_on_with(id));
        }
        if self.tape.has_room(frame.cost()) {
            self.tape.push(frame.clone());
            self.advance(id);
            return (Next::Give(frame.into_frame()), Leftovers::source(None));
        }
        match self.winner() {
            Some(winner) if winner == id => (Next::Give(frame.into_frame()), self.go_on_with(id)),
            winner => {
                // The one frame above the limit, which is lost otherwise.
                self.tape.push(frame);
                match winner {
                    Some(winner) => self.readers.keep_only(winner),
                    None => self.readers.clear(),
                }
                self.saved &= winner.is_none();
                (Next::Interrupted, self.trim())
            }
        }
    }

    /// Who goes on when the limit is crossed. `None`: only an attempt that is yet to come.
    ///
    /// The readers of attempts that are over keep their connections alive and nothing else, so they
    /// don't take the body away from a later attempt.
    fn winner(&self) -> Option<Id> {
        let live = self.readers.oldest_live();
        live.or_else(|| self.readers.oldest().filter(|_| !self.saved))
    }

    /// The source gave a frame to this reader, which goes on without a record and without others.
    pub(super) fn go_on_with(&mut self, id: Id) -> Leftovers<B> {
        self.saved = false;
        self.readers.keep_only(id);
        let leftovers = Leftovers {
            frames: self.tape.cut(self.tape.end()),
            ..Leftovers::source(None)
        };
        self.tape.pass();
        self.advance(id);
        leftovers
    }

    fn advance(&mut self, id: Id) {
        if let Some(reader) = self.readers.get_mut(id) {
            reader.position += 1;
        }
    }

    /// The source, to be polled. `None`: another reader polls it.
    pub(super) fn take_source(&mut self) -> Option<B> {
        let source = self.source.take();
        self.missed = source.is_none();
        source
    }

    /// Whether a reader wanted to poll the source since it was taken.
    ///
    /// What wakes the source's waker meanwhile may have come before that reader registered, and who
    /// was woken may be dropped: so it has to poll by itself.
    pub(super) fn is_missed(&self) -> bool {
        self.missed
    }

    /// The source, which a reader took out, comes back, unless it has ended.
    pub(super) fn put_back(&mut self, mut source: Option<B>, ended: bool) -> Leftovers<B> {
        self.ended |= ended;
        let kept = source.take_if(|_| !ended);
        self.source = kept;
        Leftovers::source(source)
    }

    /// What nobody needs any more.
    fn trim(&mut self) -> Leftovers<B> {
        if self.saved {
            return Leftovers::source(None);
        }
        let slowest = self.readers.slowest();
        Leftovers {
            frames: self.tape.cut(slowest.unwrap_or(self.tape.end())),
            source: self.source.take_if(|_| slowest.is_none()),
            waker: None,
        }
    }
}
