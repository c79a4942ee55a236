use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::{
    AttemptOutcome, AttemptScope, CallInfo, DelaySource, Event, LayerKind, Observer, RequestLine,
    SkipReason, StopReason,
};
use crate::{Attempt, Verdict};

/// Whether a layer is observed: [`NoObserver`] or [`Observed`].
pub trait Observe: Clone {
    /// The facts that a call keeps for its events.
    type Record: Record;

    /// Starts the record of a call and of its first attempt.
    fn start(
        &self,
        layer: LayerKind,
        name: &Arc<str>,
        request: impl FnOnce() -> RequestLine,
    ) -> Self::Record;
}

/// Turns the steps of one call into events. A record that is dropped before the call
/// [ended](Self::call_ended) reports the call as cancelled.
pub trait Record {
    /// An extra attempt is about to be sent.
    fn attempt_started(&mut self, _: Attempt) {}

    /// Runs `f`, which calls the inner service for `attempt` or polls its future, in the attempt's scope.
    #[inline]
    fn enter<T>(&self, _attempt: Attempt, f: impl FnOnce() -> T) -> T {
        f()
    }

    /// An attempt has an outcome. Does nothing if the attempt has ended before.
    #[inline]
    fn attempt_ended<'a>(
        &mut self,
        _: Attempt,
        _: Option<Verdict>,
        _outcome: impl FnOnce() -> AttemptOutcome<'a>,
    ) {
    }

    /// Another attempt follows after `delay`, unless the layer is in shadow mode.
    fn retry_scheduled(&mut self, _: Attempt, _delay: Duration, _: DelaySource, _is_shadow: bool) {}

    /// A hedge was due and is not sent.
    fn hedge_skipped(&mut self, _: Attempt, _: SkipReason) {}

    /// The call ended, with the response of `winner` if it succeeded. The last verdict gives a failure its
    /// reason if the layer names none. Attempts that are in flight are cancelled.
    fn call_ended(&mut self, _: Option<StopReason>, _winner: Option<Attempt>) {}
}

/// Sends no events, at no cost: a call reads no clock for it and keeps no field.
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
        let mut record = CallRecord(Box::new(Facts {
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
            verdict: None,
            ended: false,
        }));
        let start = record.0.call.start;
        record.0.start(Attempt::PRIMARY, start);
        record
    }
}

/// The record of an observed call.
#[expect(missing_debug_implementations, reason = "only layers see it")]
pub struct CallRecord(Box<Facts>);

struct Facts {
    observer: Arc<dyn Observer>,
    call: CallInfo,
    in_flight: Vec<InFlight>,
    /// The verdict on the last attempt that ended.
    verdict: Option<Verdict>,
    ended: bool,
}

struct InFlight {
    attempt: Attempt,
    start: Instant,
    scope: Option<AttemptScope>,
}

impl InFlight {
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

impl Facts {
    fn send(&self, event: Event<'_>) {
        self.observer.on_event(&self.call, event);
    }

    fn start(&mut self, attempt: Attempt, start: Instant) {
        self.call.attempts += 1;
        self.in_flight.push(InFlight {
            attempt,
            start,
            scope: self.observer.attempt_scope(&self.call, attempt),
        });
        self.send(Event::AttemptStarted { attempt });
    }

    fn end(&self, ended: &InFlight, verdict: Option<Verdict>, outcome: AttemptOutcome<'_>) {
        let event = Event::AttemptEnded {
            attempt: ended.attempt,
            outcome,
            verdict,
            elapsed: ended.start.elapsed(),
        };
        ended.enter(|| self.send(event));
    }
}

impl Record for CallRecord {
    fn attempt_started(&mut self, attempt: Attempt) {
        self.0.start(attempt, Instant::now());
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
            self.0.verdict = verdict;
            self.0.end(&ended, verdict, outcome());
        }
    }

    fn retry_scheduled(
        &mut self,
        attempt: Attempt,
        delay: Duration,
        source: DelaySource,
        is_shadow: bool,
    ) {
        if !is_shadow {
            self.0.call.delays = self.0.call.delays.saturating_add(delay);
        }
        self.0.send(Event::RetryScheduled {
            attempt,
            delay,
            source,
            is_shadow,
        });
    }

    fn hedge_skipped(&mut self, attempt: Attempt, reason: SkipReason) {
        self.0.call.skipped = self.0.call.skipped.saturating_add(1);
        self.0.send(Event::HedgeSkipped { attempt, reason });
    }

    fn call_ended(&mut self, reason: Option<StopReason>, winner: Option<Attempt>) {
        self.0.ended = true;
        for attempt in std::mem::take(&mut self.0.in_flight) {
            self.0.end(&attempt, None, AttemptOutcome::Cancelled);
        }
        let is_retryable = self.0.verdict.is_some_and(|verdict| verdict.is_retry());
        let reason = reason.unwrap_or(match (winner, is_retryable) {
            (Some(_), _) => StopReason::Success,
            (None, true) => StopReason::AttemptsExhausted,
            (None, false) => StopReason::Fatal,
        });
        self.0.send(Event::CallEnded { reason, winner });
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        if !self.0.ended {
            self.call_ended(Some(StopReason::Cancelled), None);
        }
    }
}
