use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{
    AttemptEnded, AttemptOutcome, AttemptScope, AttemptStarted, CallEnded, CallInfo, DelaySource,
    HedgeSkipped, LayerKind, Observer, RequestLine, RetryScheduled, SkipReason, StopReason,
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

/// Sends no events, at no cost: a call reads no clock for it and keeps no field.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

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

    /// The call ended, with the response of `winner` if it succeeded. Attempts that are in flight are cancelled.
    fn call_ended(&mut self, _: StopReason, _winner: Option<Attempt>) {}

    /// A race ended. Without a winner the last verdict is the reason.
    fn race_ended(&mut self, _winner: Option<Attempt>) {}
}

impl Observe for NoObserver {
    type Record = ();

    #[inline]
    fn start(&self, _: LayerKind, _: &Arc<str>, _: impl FnOnce() -> RequestLine) {}
}

impl Record for () {}

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
        let start = Instant::now();
        let mut record = CallRecord(Box::new(Facts {
            observer: Arc::clone(&self.0),
            call: CallInfo::new(layer, Arc::clone(name), request),
            start,
            in_flight: Vec::with_capacity(1),
            attempts: 0,
            skipped: 0,
            verdict: None,
            waiting_since: None,
            waited: Duration::ZERO,
            ended: false,
        }));
        record.0.start(Attempt::PRIMARY, start);
        record
    }
}

/// The record of an observed call.
pub struct CallRecord(Box<Facts>);

struct Facts {
    observer: Arc<dyn Observer>,
    call: CallInfo,
    start: Instant,
    in_flight: Vec<InFlight>,
    attempts: u32,
    skipped: u32,
    /// Of the last attempt that ended.
    verdict: Option<Verdict>,
    waiting_since: Option<Instant>,
    waited: Duration,
    ended: bool,
}

struct InFlight {
    attempt: Attempt,
    start: Instant,
    scope: Option<Box<dyn AttemptScope>>,
}

impl Facts {
    fn start(&mut self, attempt: Attempt, start: Instant) {
        self.attempts += 1;
        let call = &self.call;
        let scope = self
            .observer
            .attempt_started(&AttemptStarted { call, attempt });
        self.in_flight.push(InFlight {
            attempt,
            start,
            scope,
        });
    }

    fn end(&self, ended: &InFlight, verdict: Option<Verdict>, outcome: AttemptOutcome<'_>) {
        let event = AttemptEnded {
            call: &self.call,
            attempt: ended.attempt,
            outcome,
            verdict,
            elapsed: ended.start.elapsed(),
        };
        if let Some(scope) = &ended.scope {
            scope.end(&event);
        }
        self.observer.attempt_ended(&event);
    }

    fn stop_waiting(&mut self, now: Instant) {
        if let Some(since) = self.waiting_since.take() {
            self.waited += now.saturating_duration_since(since);
        }
    }
}

impl Record for CallRecord {
    fn attempt_started(&mut self, attempt: Attempt) {
        let now = Instant::now();
        self.0.stop_waiting(now);
        self.0.start(attempt, now);
    }

    fn enter<T>(&self, attempt: Attempt, f: impl FnOnce() -> T) -> T {
        let mut in_flight = self.0.in_flight.iter();
        let Some(InFlight {
            scope: Some(scope), ..
        }) = in_flight.find(|one| one.attempt == attempt)
        else {
            return f();
        };
        let (mut f, mut output) = (Some(f), None);
        scope.enter(&mut || {
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

    fn attempt_ended<'a>(
        &mut self,
        attempt: Attempt,
        verdict: Option<Verdict>,
        outcome: impl FnOnce() -> AttemptOutcome<'a>,
    ) {
        let facts = &mut *self.0;
        let mut in_flight = facts.in_flight.iter();
        let Some(place) = in_flight.position(|one| one.attempt == attempt) else {
            return;
        };
        let ended = facts.in_flight.remove(place);
        facts.verdict = verdict;
        facts.end(&ended, verdict, outcome());
    }

    fn retry_scheduled(
        &mut self,
        attempt: Attempt,
        delay: Duration,
        source: DelaySource,
        is_shadow: bool,
    ) {
        let facts = &mut *self.0;
        facts.waiting_since = (!is_shadow).then(Instant::now);
        facts.observer.retry_scheduled(&RetryScheduled {
            call: &facts.call,
            attempt,
            delay,
            source,
            is_shadow,
        });
    }

    fn hedge_skipped(&mut self, attempt: Attempt, reason: SkipReason) {
        let facts = &mut *self.0;
        facts.skipped = facts.skipped.saturating_add(1);
        let call = &facts.call;
        facts.observer.hedge_skipped(&HedgeSkipped {
            call,
            attempt,
            reason,
        });
    }

    fn call_ended(&mut self, reason: StopReason, winner: Option<Attempt>) {
        let facts = &mut *self.0;
        facts.ended = true;
        let now = Instant::now();
        facts.stop_waiting(now);
        for attempt in std::mem::take(&mut facts.in_flight) {
            facts.end(&attempt, None, AttemptOutcome::Cancelled);
        }
        facts.observer.call_ended(&CallEnded {
            call: &facts.call,
            reason,
            winner,
            attempts: facts.attempts,
            skipped: facts.skipped,
            waited: facts.waited,
            elapsed: now.saturating_duration_since(facts.start),
        });
    }

    fn race_ended(&mut self, winner: Option<Attempt>) {
        let reason = match (winner, self.0.verdict) {
            (Some(_), _) => StopReason::Success,
            (None, Some(verdict)) if verdict.is_retry() => StopReason::AttemptsExhausted,
            (None, _) => StopReason::Fatal,
        };
        self.call_ended(reason, winner);
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        if !self.0.ended {
            self.call_ended(StopReason::Cancelled, None);
        }
    }
}

impl fmt::Debug for CallRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.call.fmt(f)
    }
}
