//! Sources and wakers that reach back into the readers.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};
use tower_attempt::{Attempt, ReplayBody};

use crate::{Saved, again, first};

type Other = Arc<Mutex<Option<ReplayBody<Nosy>>>>;

/// Pending twice, then one frame. It polls another reader of itself while it is polled, and drops that reader when it
/// is dropped.
struct Nosy {
    other: Other,
    polls: u32,
    ending: Ending,
}

/// The outcome of the first poll that matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Frame,
    Error,
    Panic,
}

impl Nosy {
    fn look(&self) {
        if let Some(other) = &mut *self.other.lock().unwrap() {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(!other.is_end_stream());
            let _ = Pin::new(other).poll_frame(&mut cx);
        }
    }
}

impl Body for Nosy {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        assert!(self.ending != Ending::Panic, "the source panics");
        self.look();
        if self.ending == Ending::Error {
            return Poll::Ready(Some(Err("broken")));
        }
        cx.waker().wake_by_ref();
        self.polls += 1;
        match self.polls {
            1 | 2 => Poll::Pending,
            3 => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"hello"))))),
            _ => Poll::Ready(None),
        }
    }
}

impl Drop for Nosy {
    fn drop(&mut self) {
        // Drops a reader of this same source.
        drop(self.other.lock().unwrap().take());
    }
}

fn nosy(ending: Ending) -> (ReplayBody<Nosy>, Saved<ReplayBody<Nosy>>, Other) {
    let other = Other::default();
    let source = Nosy {
        other: Arc::clone(&other),
        polls: 0,
        ending,
    };
    let (body, saved) = first(ReplayBody::new(source), 1_000);
    (body, saved, other)
}

/// A task that owns a reader.
struct Task {
    _reader: Mutex<Option<ReplayBody<Nosy>>>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_source_may_poll_and_drop_its_own_readers() {
    let (mut body, saved, other) = nosy(Ending::Frame);
    *other.lock().unwrap() = again(&saved, Attempt::hedge(2));
    let mut cx = Context::from_waker(Waker::noop());
    let mut poll = || Pin::new(&mut body).poll_frame(&mut cx);
    assert!(poll().is_pending());
    assert!(poll().is_pending());
    assert!(poll().is_ready());
    assert!(matches!(poll(), Poll::Ready(None)));
    assert!(other.lock().unwrap().is_none(), "the source was dropped");
    drop(saved);
}

#[test]
fn a_source_that_fails_may_drop_its_own_readers() {
    let (mut body, saved, other) = nosy(Ending::Error);
    *other.lock().unwrap() = again(&saved, Attempt::hedge(2));
    let mut cx = Context::from_waker(Waker::noop());
    let polled = Pin::new(&mut body).poll_frame(&mut cx);
    assert!(matches!(polled, Poll::Ready(Some(Err(_)))));
    assert!(other.lock().unwrap().is_none(), "the source was dropped");
}

#[test]
fn a_waker_may_drop_a_reader() {
    let (mut body, saved, _) = nosy(Ending::Frame);
    let task = || {
        let reader = Mutex::new(again(&saved, Attempt::hedge(2)));
        Waker::from(Arc::new(Task { _reader: reader }))
    };
    for _ in 0..3 {
        // Each waker replaces the previous one, or is woken and dropped.
        let waker = task();
        let _ = Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker));
    }
    drop(body);
}

#[test]
fn a_source_that_panics_interrupts_the_other_readers() {
    let (mut body, saved, _) = nosy(Ending::Panic);
    let mut other = again(&saved, Attempt::hedge(2)).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let poll = AssertUnwindSafe(|| Pin::new(&mut body).poll_frame(&mut cx).is_ready());
    assert!(catch_unwind(poll).is_err());
    let mut cx = Context::from_waker(Waker::noop());
    let polled = Pin::new(&mut other).poll_frame(&mut cx);
    assert!(matches!(polled, Poll::Ready(Some(Err(_)))));
    assert!(again(&saved, Attempt::retry(3)).is_none());
}

/// Runs an action once, then is pending until it is woken from outside.
#[derive(Clone, Default)]
struct Meddler(Arc<Mutex<Meddling>>);

type Act = Box<dyn FnOnce(&Waker) + Send>;

#[derive(Default)]
struct Meddling {
    act: Option<Act>,
    waker: Option<Waker>,
}

impl Body for Meddler {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let act = self.0.lock().unwrap().act.take();
        act.into_iter().for_each(|act| act(cx.waker()));
        self.0.lock().unwrap().waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// The source was polled with the waker of the only reader, so it would wake no other reader.
#[test]
fn a_reader_that_joins_while_the_source_is_polled_is_woken() {
    let source = Meddler::default();
    let (mut body, saved) = first(ReplayBody::new(source.clone()), 1_000);
    let counts = [(); 2].map(|()| Arc::new(Count(AtomicU32::new(0))));
    let [one, two] = counts.clone().map(Waker::from);
    let woken = || counts.each_ref().map(|count| count.0.swap(0, SeqCst));

    let other = Arc::new(Mutex::new(None));
    let (waker, joined) = (two.clone(), Arc::clone(&other));
    source.0.lock().unwrap().act = Some(Box::new(move |_| {
        let mut other = again(&saved, Attempt::hedge(2)).unwrap();
        let polled = Pin::new(&mut other).poll_frame(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        *joined.lock().unwrap() = Some(other);
    }));
    let polled = Pin::new(&mut body).poll_frame(&mut Context::from_waker(&one));
    assert!(polled.is_pending());
    assert_eq!(woken(), [0, 1]);

    // From now on the source wakes both readers.
    let mut other = other.lock().unwrap().take().unwrap();
    let polled = Pin::new(&mut other).poll_frame(&mut Context::from_waker(&two));
    assert!(polled.is_pending());
    let waker = source.0.lock().unwrap().waker.take();
    waker.unwrap().wake();
    assert_eq!(woken(), [1, 1]);
}

/// A reader that the source wakes during a poll may be cancelled before it polls again.
#[test]
fn a_reader_that_finds_the_source_taken_is_woken() {
    let source = Meddler::default();
    let (mut body, saved) = first(ReplayBody::new(source.clone()), 1_000);
    let mut other = again(&saved, Attempt::hedge(2)).unwrap();
    let count = Arc::new(Count(AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    source.0.lock().unwrap().act = Some(Box::new(move |all| {
        all.wake_by_ref();
        let polled = Pin::new(&mut other).poll_frame(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        std::mem::forget(other);
    }));
    let polled = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    drop(body);
    assert_eq!(count.0.load(SeqCst), 1);
}

/// Pending once, then fails. Panics when it is dropped.
struct PanicsOnDrop {
    was_polled: bool,
}

impl Body for PanicsOnDrop {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        match std::mem::replace(&mut self.was_polled, true) {
            false => Poll::Pending,
            true => Poll::Ready(Some(Err("broken"))),
        }
    }
}

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("the drop panics");
    }
}

#[test]
fn a_source_whose_drop_panics_still_wakes_the_other_readers() {
    let source = PanicsOnDrop { was_polled: false };
    let (mut body, saved) = first(ReplayBody::new(source), 1_000);
    let mut other = again(&saved, Attempt::hedge(2)).unwrap();
    let count = Arc::new(Count(AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut poll_other = || Pin::new(&mut other).poll_frame(&mut Context::from_waker(&waker));
    assert!(poll_other().is_pending());
    let mut cx = Context::from_waker(Waker::noop());
    let poll = AssertUnwindSafe(|| Pin::new(&mut body).poll_frame(&mut cx).is_ready());
    assert!(catch_unwind(poll).is_err());
    assert_eq!(count.0.load(SeqCst), 1);
    assert!(matches!(poll_other(), Poll::Ready(Some(Err(_)))));
}
