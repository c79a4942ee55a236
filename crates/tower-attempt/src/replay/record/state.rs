use bytes::Bytes;
use http_body::{Body, Frame};

use super::Leftovers;
use crate::replay::frame::Recorded;
use crate::replay::readers::{Id, Readers};
use crate::replay::tape::Tape;
use crate::replay::wakers::Waiting;
use crate::replay::{ReplayBody, ReplayError};

/// What is behind the lock of a record. Nothing here polls, wakes or drops what is not its own.
pub(in crate::replay) struct State<S: Body> {
    /// `None` while a reader polls it, and when it has ended or failed.
    source: Option<ReplayBody<S>>,
    /// The error of the source, until the reader with this id receives it.
    error: Option<(Id, ReplayError<S::Error>)>,
    /// A reader wanted to poll the source while it was gone.
    missed: bool,
    ended: bool,
    tape: Tape,
    readers: Readers,
    pub(in crate::replay) waiting: Waiting,
    /// Further readers may come. Until then the tape is whole.
    saved: bool,
}

/// What a reader does next.
pub(in crate::replay) enum Next<E> {
    Give(Frame<Bytes>),
    End,
    Failed(ReplayError<E>),
    Interrupted,
    PollSource,
}

impl<S: Body> State<S> {
    pub(super) fn new(source: ReplayBody<S>, limit: usize) -> (Self, Id) {
        let mut readers = Readers::new();
        let first = readers.add();
        let state = Self {
            source: Some(source),
            error: None,
            missed: false,
            ended: false,
            tape: Tape::new(limit),
            readers,
            waiting: Waiting::Alone(None),
            saved: true,
        };
        (state, first)
    }

    /// Another reader, if the record is whole. `others_ended`: all earlier attempts are over.
    ///
    /// One that `is_mute` would wait for ever if it was interrupted, so there is none while an earlier attempt
    /// may still cut it off.
    pub(in crate::replay) fn join(&mut self, others_ended: bool, is_mute: bool) -> Option<Id> {
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
    pub(in crate::replay) fn leave(&mut self, id: Id) -> Leftovers<S> {
        self.readers.remove(id);
        Leftovers {
            waker: self.waiting.forget(id),
            ..self.trim()
        }
    }

    /// No further readers will come.
    pub(in crate::replay) fn close(&mut self) -> Leftovers<S> {
        self.saved = false;
        self.trim()
    }

    /// The source failed while this reader polled it, so no reader can have the rest.
    ///
    /// The oldest live attempt receives the error: if all attempts of a call fail, the caller gets the failure of the
    /// oldest, which should name the cause.
    pub(in crate::replay) fn fail(
        &mut self,
        id: Id,
        error: ReplayError<S::Error>,
    ) -> (Next<S::Error>, Leftovers<S>) {
        let oldest = self.readers.oldest_live().unwrap_or(id);
        let leftovers = self.abort();
        if oldest == id {
            return (Next::Failed(error), leftovers);
        }
        self.error = Some((oldest, error));
        (Next::Interrupted, leftovers)
    }

    /// Interrupts all readers, present and future ones.
    pub(in crate::replay) fn abort(&mut self) -> Leftovers<S> {
        self.readers.clear();
        self.close()
    }

    pub(in crate::replay) fn next(&mut self, id: Id) -> Next<S::Error> {
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
    pub(in crate::replay) fn is_alone(&self) -> bool {
        self.readers.is_alone()
    }

    pub(in crate::replay) fn is_ended(&mut self, id: Id) -> bool {
        let end = self.tape.end();
        self.ended
            && self
                .readers
                .get_mut(id)
                .is_some_and(|reader| reader.position == end)
    }

    /// The source, which this reader took out, gave a frame.
    pub(in crate::replay) fn record(
        &mut self,
        id: Id,
        frame: Recorded,
    ) -> (Next<S::Error>, Leftovers<S>) {
        if !self.saved && self.is_alone() {
            // Nobody else needs it.
            return (Next::Give(frame.into_frame()), self.go_on_with(id));
        }
        if self.tape.has_room(frame.cost()) {
            self.tape.push(frame.clone());
            self.advance(id);
            return (Next::Give(frame.into_frame()), Leftovers::none());
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
    pub(in crate::replay) fn go_on_with(&mut self, id: Id) -> Leftovers<S> {
        self.saved = false;
        self.readers.keep_only(id);
        let leftovers = Leftovers {
            frames: self.tape.cut(self.tape.end()),
            ..Leftovers::none()
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
    pub(in crate::replay) fn take_source(&mut self) -> Option<ReplayBody<S>> {
        let source = self.source.take();
        self.missed = source.is_none();
        source
    }

    /// Whether a reader wanted to poll the source since it was taken.
    ///
    /// What wakes the source's waker meanwhile may have come before that reader registered, and who
    /// was woken may be dropped: so it has to poll by itself.
    pub(in crate::replay) fn is_missed(&self) -> bool {
        self.missed
    }

    /// The source, which a reader took out, comes back, unless it has ended.
    pub(in crate::replay) fn put_back(
        &mut self,
        source: Option<ReplayBody<S>>,
        ended: bool,
    ) -> Leftovers<S> {
        self.ended |= ended;
        let (source, leftover) = match ended {
            true => (None, source),
            false => (source, None),
        };
        self.source = source;
        Leftovers {
            source: leftover,
            ..Leftovers::none()
        }
    }

    /// What nobody needs any more.
    fn trim(&mut self) -> Leftovers<S> {
        if self.saved {
            return Leftovers::none();
        }
        let slowest = self.readers.slowest();
        Leftovers {
            frames: self.tape.cut(slowest.unwrap_or(self.tape.end())),
            source: self.source.take_if(|_| slowest.is_none()),
            waker: None,
        }
    }
}
