use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::{
    AttemptOutcome, AttemptScope, CallInfo, Event, LayerKind, Observer, RequestLine, StopReason,
};
use crate::{Attempt, Verdict};

/// Starts the record of each call. [`Observed`] sends events to an observer, and [`NoObserver`] sends none.
pub trait Observe: Clone {
    /// The facts that a call keeps for its events.
    type Record: Record;

    /// Starts the record of a call and of its first attempt. [`Observed`] also sends the attempt's
    /// [`AttemptStarted`](Event::AttemptStarted).
    fn start(
        &self,
        layer: LayerKind,
        name: &Arc<str>,
        request: impl FnOnce() -> RequestLine,
    ) -> Self::Record;
}

/// Sends the events of one call. If the record of an [`Observed`] call is dropped before
/// [`CallEnded`](Event::CallEnded), it sends this event with [`StopReason::Cancelled`].
pub trait Record {
    /// Sends an event other than [`AttemptEnded`](Event::AttemptEnded). If the event is
    /// [`CallEnded`](Event::CallEnded), first sends the end of each attempt in flight, as cancelled.
    #[inline]
    fn send(&mut self, _: Event<'_>) {}

    /// Runs `f` in the attempt's [scope](Observer::attempt_scope). `f` calls the inner service for `attempt`, or polls
    /// the attempt's future.
    #[inline]
    fn enter<T>(&self, _attempt: Attempt, f: impl FnOnce() -> T) -> T {
        f()
    }

    /// Sends [`AttemptEnded`](Event::AttemptEnded), unless the attempt has ended before.
    #[inline]
    fn attempt_ended<'a>(
        &mut self,
        _: Attempt,
        _: Option<Verdict>,
        _outcome: impl FnOnce() -> AttemptOutcome<'a>,
    ) {
    }
}

/// Sends no events, and costs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observe for NoObserver {
    type Record = ();

    #[inline]
    fn start(&self, _: LayerKind, _: &Arc<str>, _: impl FnOnce() -> RequestLine) {}
}

impl Record for () {}

/// Sends events to an [`Observer`].
#[derive(Clone)]
pub struct Observed(Arc<dyn Observer>);

impl Observed {
    /// Sends events to `observer`.
    pub fn new(observer: impl Observer) -> Self {
        Self(Arc::new(observer))
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observed")
    }
}

impl Observe for Observed {
    type Record = CallRecord;

    fn start(
        &self,
        layer: LayerKind,
        name: &Arc<str>,
        request: impl FnOnce() -> RequestLine,
    ) -> CallRecord {
        let request = match self.0.reads_request() {
            true => request(),
            false => RequestLine::default(),
        };
        let mut record = CallRecord(Box::new(CallFacts {
            observer: Arc::clone(&self.0),
            call: CallInfo {
                layer,
                name: Arc::clone(name),
                attempts: 0,
                skipped: 0,
                delays: Duration::ZERO,
                start: Instant::now(),
                request,
                id: OnceLock::new(),
            },
            in_flight: Vec::with_capacity(1),
            ended: false,
        }));
        record.send(Event::AttemptStarted {
            attempt: Attempt::PRIMARY,
        });
        record
    }
}

/// The [`Record`] type of [`Observed`]: sends the events of one call to the [`Observer`].
#[expect(missing_debug_implementations, reason = "only layers see it")]
pub struct CallRecord(Box<CallFacts>);

struct CallFacts {
    observer: Arc<dyn Observer>,
    call: CallInfo,
    in_flight: Vec<AttemptInFlight>,
    ended: bool,
}

struct AttemptInFlight {
    attempt: Attempt,
    start: Instant,
    scope: Option<AttemptScope>,
}

impl AttemptInFlight {
    fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        let Some(scope) = &self.scope else { return f() };
        let (mut f, mut output) = (Some(f), None);
        scope(&mut || {
            if let Some(f) = f.take() {
                output = Some(f());
            }
        });
        match (output, f) {
            (Some(output), _) => output,
            (None, Some(f)) => f(),
            (None, None) => panic!("the scope of an attempt caught the attempt's panic"),
        }
    }
}

impl CallFacts {
    fn end(&self, ended: &AttemptInFlight, verdict: Option<Verdict>, outcome: AttemptOutcome<'_>) {
        let event = Event::AttemptEnded {
            attempt: ended.attempt,
            outcome,
            verdict,
            elapsed: ended.start.elapsed(),
        };
        ended.enter(|| self.observer.on_event(&self.call, event));
    }
}

impl Record for CallRecord {
    fn send(&mut self, event: Event<'_>) {
        let facts = &mut *self.0;
        let call = &mut facts.call;
        match event {
            Event::AttemptStarted { attempt } => {
                call.attempts += 1;
                let start = match call.attempts {
                    1 => call.start,
                    _ => Instant::now(),
                };
                let scope = facts.observer.attempt_scope(call, attempt);
                facts.in_flight.push(AttemptInFlight {
                    attempt,
                    start,
                    scope,
                });
            }
            Event::RetryScheduled {
                delay,
                is_shadow: false,
                ..
            } => call.delays = call.delays.saturating_add(delay),
            Event::HedgeSkipped { .. } => call.skipped = call.skipped.saturating_add(1),
            Event::CallEnded { .. } => {
                facts.ended = true;
                for attempt in std::mem::take(&mut facts.in_flight) {
                    facts.end(&attempt, None, AttemptOutcome::Cancelled);
                }
            }
            _ => {}
        }
        self.0.observer.on_event(&self.0.call, event);
    }

    fn enter<T>(&self, attempt: Attempt, f: impl FnOnce() -> T) -> T {
        let mut in_flight = self.0.in_flight.iter();
        match in_flight.find(|one| one.attempt == attempt) {
            Some(attempt) => attempt.enter(f),
            None => f(),
        }
    }

    fn attempt_ended<'a>(
        &mut self,
        attempt: Attempt,
        verdict: Option<Verdict>,
        outcome: impl FnOnce() -> AttemptOutcome<'a>,
    ) {
        let mut in_flight = self.0.in_flight.iter();
        if let Some(place) = in_flight.position(|one| one.attempt == attempt) {
            let ended = self.0.in_flight.remove(place);
            self.0.end(&ended, verdict, outcome());
        }
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        if !self.0.ended {
            self.send(Event::CallEnded {
                reason: StopReason::Cancelled,
                winner: None,
            });
        }
    }
}
