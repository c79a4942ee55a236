//! Random interleavings against the model. Readers are polled only when they were woken.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use http_body::Body;
use proptest::collection::vec;
use proptest::prelude::*;
use tower_attempt::{Attempt, ReplayBody, ReplayError};

use crate::model::{Model, Seen, Source};
use crate::script::{Broken, Control, Manners, Piece, Script, Step, pieces};
use crate::{Saved, again, scripted};

#[derive(Clone, Debug)]
enum Act {
    Join { retry: bool },
    DropSaved,
    Ripen,
    Poll { reader: usize, fresh_waker: bool },
    Drop { reader: usize },
    Stall { reader: usize },
    Fire { thread: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_usize..300).prop_map(Step::Data),
        2 => Just(Step::Data(0)),
        1 => Just(Step::Trailers),
        3 => Just(Step::WakeInline),
        4 => Just(Step::Wait),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let error = prop_oneof![3 => Just(false), 1 => Just(true)];
    (vec(step(), 0..16), error).prop_map(|(mut steps, error)| {
        steps.extend(error.then_some(Step::Error));
        steps
    })
}

fn act() -> impl Strategy<Value = Act> {
    let reader = 0_usize..4;
    prop_oneof![
        30 => (reader.clone(), any::<bool>())
            .prop_map(|(reader, fresh_waker)| Act::Poll { reader, fresh_waker }),
        6 => any::<bool>().prop_map(|retry| Act::Join { retry }),
        6 => prop_oneof![9 => Just(false), 1 => Just(true)].prop_map(|thread| Act::Fire { thread }),
        2 => Just(Act::Ripen),
        1 => Just(Act::DropSaved),
        1 => reader.clone().prop_map(|reader| Act::Drop { reader }),
        1 => reader.prop_map(|reader| Act::Stall { reader }),
    ]
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

struct Run {
    model: Model,
    control: Control,
    manners: Manners,
    is_empty: bool,
    saved: Option<Saved<ReplayBody<Script>>>,
    readers: Vec<Reader>,
}

impl Run {
    fn new(steps: Vec<Step>, manners: Manners, limit: usize) -> Self {
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

    fn act(&mut self, act: &Act) {
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
        let attempt = match retry {
            true => Attempt::retry(2),
            false => Attempt::hedge(2),
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

    /// One poll, if the reader was woken. Whether it was.
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
        // One that says from the beginning that it is empty need not be read.
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
                // Goes on by itself.
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

    /// Lets everyone who isn't stalled read to the end.
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
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn each_reader_sees_what_the_model_sees(
        steps in steps(),
        knows_size: bool,
        knows_end: bool,
        limit in prop_oneof![Just(usize::MAX), 0_usize..3_000],
        acts in vec(act(), 0..100),
        saved_goes_first: bool,
    ) {
        let manners = Manners { knows_size, knows_end };
        let mut run = Run::new(steps, manners, limit);
        acts.iter().for_each(|act| run.act(act));
        run.finish();

        let control = run.control.clone();
        if saved_goes_first {
            run.saved = None;
            run.readers.clear();
        } else {
            run.readers.clear();
            let needed = run.model.saved && control.get(|progress| !progress.ended);
            prop_assert!(needed || control.get(|progress| progress.dropped) == 1);
            run.saved = None;
        }
        prop_assert_eq!(control.get(|progress| progress.dropped), 1, "the source is dropped once");
    }
}
