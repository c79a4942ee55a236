//! Readers that follow a script. Each step is compared with the model. Readers are polled only after a wake.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use http_body::Body;
use tower_attempt::{Attempt, ReplayBody, ReplayError};

use crate::model::{Model, Seen, Source};
use crate::saved::{Saved, again, scripted};
use crate::script::{Broken, Control, Manners, Piece, Script, Step, pieces};

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Join { retry: bool },
    DropSaved,
    Ripen,
    Poll { reader: usize, fresh_waker: bool },
    Drop { reader: usize },
    Stall { reader: usize },
    Fire { thread: bool },
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

fn flag() -> Arc<Flag> {
    Arc::new(Flag(AtomicBool::new(true)))
}

struct Reader {
    body: Option<ReplayBody<Script>>,
    woken: Arc<Flag>,
    stalled: bool,
    read: usize,
}

pub(crate) struct Run {
    model: Model,
    control: Control,
    manners: Manners,
    is_empty: bool,
    saved: Option<Saved<ReplayBody<Script>>>,
    readers: Vec<Reader>,
}

impl Run {
    pub(crate) fn new(steps: Vec<Step>, manners: Manners, limit: usize) -> Self {
        let model = Model::new(pieces(&steps), limit);
        let is_empty = steps.is_empty() && manners.knows_end;
        let (script, control) = Script::new(steps, manners);
        let (body, saved) = scripted(script, limit);
        let mut run = Self {
            model,
            control,
            manners,
            is_empty,
            saved: Some(saved),
            readers: Vec::new(),
        };
        run.add(body);
        run
    }

    fn add(&mut self, body: ReplayBody<Script>) {
        self.readers.push(Reader {
            body: Some(body),
            woken: flag(),
            stalled: false,
            read: 0,
        });
    }

    pub(crate) fn act(&mut self, act: &Act) {
        match *act {
            Act::Join { retry } => self.join(retry),
            Act::DropSaved => {
                self.saved = None;
                self.model.saved = false;
            }
            Act::Ripen => self.control.ripen(),
            Act::Fire { thread } => self.fire(thread),
            Act::Poll {
                reader,
                fresh_waker,
            } if reader < self.readers.len() => {
                self.poll(reader, fresh_waker);
            }
            Act::Drop { reader } if reader < self.readers.len() => {
                self.readers[reader].body = None;
                self.model.finish(reader, Seen::End);
            }
            Act::Stall { reader } if reader < self.readers.len() => {
                self.readers[reader].stalled = true;
            }
            _ => {}
        }
    }

    fn join(&mut self, retry: bool) {
        let Some(saved) = self.saved.as_ref().filter(|_| self.readers.len() < 4) else {
            return;
        };
        let number = u32::try_from(self.readers.len() + 1).unwrap();
        let attempt = match retry {
            true => Attempt::retry(number),
            false => Attempt::hedge(number),
        };
        let body = again(saved, attempt);
        assert_eq!(body.is_some(), self.model.join(retry), "can be repeated");
        body.into_iter().for_each(|body| self.add(body));
    }

    fn fire(&self, thread: bool) {
        let Some(waker) = self.control.fire() else {
            return;
        };
        match thread {
            true => std::thread::spawn(|| waker.wake()).join().unwrap(),
            false => waker.wake(),
        }
    }

    /// Polls a reader once, if it was woken. Returns whether it was.
    fn poll(&mut self, number: usize, fresh_waker: bool) -> bool {
        let reader = &mut self.readers[number];
        let Some(body) = reader.body.as_mut().filter(|_| !reader.stalled) else {
            return false;
        };
        if !reader.woken.0.swap(false, SeqCst) {
            return false;
        }
        if fresh_waker {
            reader.woken = flag();
            reader.woken.0.store(false, SeqCst);
        }
        let total: usize = self.model.frames.iter().map(Piece::len).sum();
        // A source that is empty from the beginning may report its size.
        let exact = self.manners.knows_size || self.is_empty;
        let rest = exact.then_some((total - reader.read) as u64);
        assert_eq!(body.size_hint().exact(), rest);
        let before = self
            .control
            .get(|progress| (progress.frames, progress.failed));
        let waker = Waker::from(Arc::clone(&reader.woken));
        let polled = Pin::new(&mut *body).poll_frame(&mut Context::from_waker(&waker));
        let seen = match polled {
            Poll::Pending => Seen::Pending,
            Poll::Ready(None) => Seen::End,
            Poll::Ready(Some(Err(ReplayError::Source(Broken)))) => Seen::Broken,
            Poll::Ready(Some(Err(_))) => Seen::Interrupted,
            Poll::Ready(Some(Ok(frame))) => Seen::Frame(Piece::of(frame)),
        };
        let (frames, failed, ended) = self
            .control
            .get(|progress| (progress.frames, progress.failed, progress.ended));
        let source = match (frames - before.0, failed != before.1) {
            (0, false) => Source::Untouched,
            (1, false) => Source::Frame,
            (0, true) => Source::Failed,
            _ => panic!("the source was polled after it was ready"),
        };
        let whole = self.manners.knows_end && frames == self.model.frames.len() && !failed;
        let at_end = ended || (whole && seen == Seen::End);
        assert_eq!(seen, self.model.poll(number, source, at_end));
        match seen {
            Seen::Pending => {}
            Seen::Frame(piece) => {
                reader.read += piece.len();
                // The reader polls again without a wake.
                reader.woken.0.store(true, SeqCst);
                let all = self.model.readers[number].1 == self.model.frames.len();
                assert!(all || !body.is_end_stream(), "ends too early");
            }
            Seen::End | Seen::Broken | Seen::Interrupted => {
                reader.body = None;
                self.model.finish(number, Seen::End);
            }
        }
        true
    }

    /// Lets every reader that is not stalled read to the end.
    fn finish(&mut self) {
        loop {
            let mut any = false;
            for reader in 0..self.readers.len() {
                any |= self.poll(reader, false);
            }
            if any {
                continue;
            }
            let mut left = self.readers.iter().filter(|reader| !reader.stalled);
            if !left.any(|reader| reader.body.is_some()) {
                return;
            }
            let waker = self.control.fire();
            waker
                .expect("nobody is woken, and the source wakes nobody")
                .wake();
        }
    }

    /// Lets all readers finish, then drops the readers and the saved request in this order.
    pub(crate) fn end(mut self, saved_goes_first: bool) {
        self.finish();
        let control = self.control.clone();
        if saved_goes_first {
            self.saved = None;
            self.readers.clear();
        } else {
            self.readers.clear();
            let needed = self.model.saved && control.get(|progress| !progress.ended);
            assert!(needed || control.get(|progress| progress.dropped) == 1);
            self.saved = None;
        }
        let dropped = control.get(|progress| progress.dropped);
        assert_eq!(dropped, 1, "the source is dropped once");
    }
}
