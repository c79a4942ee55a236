use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;
use tower_attempt::{
    Attempt, AttemptKind, Budget, Classify, Deadline, Hint, Replays, Rules, Verdict,
};
use tower_service::Service;

use super::Outcome;
use super::hedge::{End, Hedge};
use super::timing::{Due, Timing};
use crate::elsewhere::Elsewhere;
use crate::losers::Losers;
use crate::settings::Settings;
use crate::{HedgeInfo, Observer, SkipReason};

/// All of a call but its first attempt and its timer.
pub(crate) struct Race<S, C, R, O, A, L, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
    A: Elsewhere<S, Req>,
    L: Losers<S::Future>,
{
    rules: Rules<C, R>,
    observer: O,
    elsewhere: A,
    losers: L,
    settings: Arc<Settings>,
    context: C::Context,
    deadline: Deadline,
    /// `None` if the request may not be hedged.
    timing: Option<Timing>,
    /// `None` if this call is not hedged, or not any more.
    spare: Option<Spare<S, R::Saved, A::Call>>,
    /// How many hedges came due, sent or not.
    stage: u32,
    /// How many attempts were sent, the first included.
    attempts: u32,
    /// In flight, the oldest first.
    hedges: Vec<Hedge<S, L, Req>>,
    /// An attempt has failed, so the next hedge is due whatever its time.
    hurry: bool,
    /// By how much later hedges are due since a server asked to wait.
    postponed: Duration,
    ended: bool,
}

/// What hedges are made from.
pub(crate) struct Spare<S, V, E> {
    service: S,
    saved: V,
    elsewhere: E,
}

impl<S, V, E> Spare<S, V, E> {
    pub(crate) fn new(service: S, saved: V, elsewhere: E) -> Self {
        Self {
            service,
            saved,
            elsewhere,
        }
    }
}

impl<S, C, R, O, A, L, Req> Race<S, C, R, O, A, L, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
    A: Elsewhere<S, Req>,
    L: Losers<S::Future>,
{
    #[expect(clippy::too_many_arguments, reason = "each becomes a field")]
    #[inline]
    pub(crate) fn new(
        rules: Rules<C, R>,
        observer: O,
        elsewhere: A,
        losers: L,
        settings: Arc<Settings>,
        context: C::Context,
        deadline: Deadline,
        timing: Option<Timing>,
        spare: Option<Spare<S, R::Saved, A::Call>>,
    ) -> Self {
        observer.attempt_started(&Attempt::PRIMARY);
        let own = rules.classify.budget(&context);
        let budget = own.unwrap_or(&settings.tuning.budget);
        settings.begin(timing.is_some(), budget);
        Self {
            rules,
            observer,
            elsewhere,
            losers,
            settings,
            context,
            deadline,
            timing,
            spare,
            stage: 0,
            attempts: 1,
            hedges: Vec::new(),
            hurry: false,
            postponed: Duration::ZERO,
            ended: false,
        }
    }

    /// When the next hedge is due; never if there is nothing to make it from.
    pub(super) fn due(&self) -> Due {
        match (&self.timing, &self.spare) {
            (Some(timing), Some(_)) => {
                let due = timing.due(&self.settings, self.stage, self.postponed);
                due.before(&self.deadline)
            }
            _ => Due::Never,
        }
    }

    pub(super) fn losers(&self) -> &L {
        &self.losers
    }

    pub(super) fn has_sent(&self) -> bool {
        self.hedges.iter().any(Hedge::is_sent)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn is_in_a_hurry(&self) -> bool {
        self.hurry
    }

    /// Judges an attempt's outcome, once.
    #[inline]
    pub(super) fn is_good(&mut self, attempt: &Attempt, outcome: &Outcome<S, Req>) -> bool {
        let classify = &self.rules.classify;
        let verdict = classify.classify(&self.context, attempt, outcome);
        if !verdict.is_retry() {
            return true;
        }
        self.failed(verdict);
        false
    }

    /// What follows from a failure: a server that asks to wait or to stop is obeyed.
    #[cold]
    fn failed(&mut self, verdict: Verdict) {
        self.budget().record_failure();
        self.hurry = false;
        let wait = match verdict {
            Verdict::Retry {
                hint: Some(Hint::AtLeast(wait) | Hint::Exactly(wait)),
                ..
            } => wait,
            Verdict::Retry { hint: Some(_), .. } => {
                self.spare = None;
                return;
            }
            _ => {
                self.hurry = self.hedges_on_failure();
                return;
            }
        };
        let now = Instant::now();
        let due = match self.due() {
            Due::Never => return,
            Due::Now => now,
            Due::At(due) => due,
        };
        match now.checked_add(wait) {
            Some(earliest) => self.postponed += earliest.saturating_duration_since(due),
            None => self.spare = None,
        }
    }

    fn budget(&self) -> &Budget {
        let own = self.rules.classify.budget(&self.context);
        own.unwrap_or(&self.settings.tuning.budget)
    }

    /// Whether the call goes on when its first attempt has failed.
    ///
    /// Without others in flight it does not: repeating is not this layer's business, unless it was
    /// told so and no server asks to wait, and a hedge whose service is not ready is no reason to wait.
    pub(super) fn survives_failure(&self) -> bool {
        self.has_sent() || self.hurry
    }

    pub(super) fn primary_failed(&mut self) {
        self.observer.attempt_failed(&Attempt::PRIMARY);
        if let Some(timing) = &mut self.timing {
            timing.primary_failed();
        }
    }

    /// Whether a failure now is a reason for a hedge.
    fn hedges_on_failure(&self) -> bool {
        self.settings.tuning.on_failure
            && !matches!(self.due(), Due::Never)
            && self.deadline.leaves(Duration::ZERO)
    }

    fn skip(&self, attempt: &Attempt, reason: SkipReason) {
        self.settings.state.counters.skip(reason);
        self.observer.hedge_skipped(attempt, reason);
    }

    /// The call ends: what there is to learn, to count and to tell of hedges.
    #[inline]
    fn settle(&self, succeeded: bool, won: bool) {
        let settings = &*self.settings;
        let mut learned = false;
        if let Some(timing) = &self.timing
            && settings.is_timed()
        {
            let now = Instant::now();
            if !settings.sends() {
                self.shadow(timing, now);
            }
            learned = timing.learn(settings, succeeded, now);
            if self.attempts > 1 {
                let guard = &timing.class(settings).guard;
                guard.record(self.attempts - 1, won);
            }
        }
        if !learned {
            settings.state.counters.unlearned.count();
        }
    }

    /// Counts the hedges that would have been sent by now.
    #[cold]
    fn shadow(&self, timing: &Timing, now: Instant) {
        for hedge in 0.. {
            let due = timing.due(&self.settings, hedge, Duration::ZERO);
            match due.before(&self.deadline) {
                Due::At(due) if due > now => return,
                Due::Never => return,
                _ => {}
            }
            if hedge == 0 {
                self.settings.state.counters.late.count();
            }
            self.skip(&Attempt::hedge(hedge + 2), SkipReason::Shadow);
        }
    }
}

impl<S, C, R, O, A, L, Req> Race<S, C, R, O, A, L, Req>
where
    S: Service<Req> + Clone,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
    A: Elsewhere<S, Req>,
    L: Losers<S::Future>,
{
    /// Adds the hedge whose time has come.
    pub(super) fn add_late_hedge(&mut self) {
        if self.stage == 0 {
            self.settings.state.counters.late.count();
        }
        self.add_hedge();
    }

    /// Adds the next hedge, unless hedges do not help or the budget has no token for it anyway.
    pub(super) fn add_hedge(&mut self) {
        self.hurry = false;
        self.stage += 1;
        let attempt = Attempt::hedge(self.stage + 1);
        if !self.is_worth_it() {
            return self.skip(&attempt, SkipReason::HeldBack);
        }
        if self.budget().withdraw().is_none() {
            return self.skip(&attempt, SkipReason::Denied);
        }
        let (replays, elsewhere) = (&self.rules.replays, &self.elsewhere);
        let more = self
            .timing
            .as_ref()
            .and_then(|timing| timing.delay(&self.settings, self.stage));
        let next = match more {
            Some(_) => self.spare.as_ref().and_then(|spare| {
                let request = replays.again(&spare.saved, attempt)?;
                let own = spare.service.clone();
                Some((elsewhere.service(&spare.elsewhere, attempt, own), request))
            }),
            None => self.spare.take().and_then(|spare| {
                let request = replays.last(spare.saved, attempt)?;
                let own = spare.service;
                Some((elsewhere.service(&spare.elsewhere, attempt, own), request))
            }),
        };
        let Some((service, request)) = next else {
            return self.skip(&attempt, SkipReason::NotRepeatable);
        };
        self.hedges.push(Hedge::new(attempt, service, request));
    }

    /// What a fixed trigger sends is the caller's own decision.
    fn is_worth_it(&self) -> bool {
        let Some(timing) = &self.timing else {
            return true;
        };
        !self.settings.learns() || timing.class(&self.settings).guard.allows()
    }

    /// The first good answer among the hedges.
    ///
    /// One that failed is dropped: the first attempt's failure is what the caller gets to see if
    /// they all fail.
    pub(super) fn poll_hedges(&mut self, cx: &mut Context<'_>) -> Poll<(Attempt, Outcome<S, Req>)> {
        let mut next = 0;
        while let Some(hedge) = self.hedges.get_mut(next) {
            let polled = match hedge.is_sent() {
                true => hedge.poll(cx),
                false => self.send(cx, next),
            };
            let Poll::Ready(end) = polled else {
                next += 1;
                continue;
            };
            let attempt = self.hedges.remove(next).attempt;
            match end {
                End::Answered(outcome) if self.is_good(&attempt, &outcome) => {
                    return Poll::Ready((attempt, outcome));
                }
                End::Answered(_) => {
                    self.observer.attempt_failed(&attempt);
                }
                End::Skipped(reason) => self.skip(&attempt, reason),
            }
        }
        Poll::Pending
    }

    /// Sends the hedge at this place once its service is ready for it, and polls it.
    fn send(&mut self, cx: &mut Context<'_>, place: usize) -> Poll<End<Outcome<S, Req>>> {
        let Some(hedge) = self.hedges.get_mut(place) else {
            return Poll::Pending;
        };
        let Some(mut request) = ready!(hedge.poll_ready(cx)) else {
            return Poll::Ready(End::Skipped(SkipReason::NotReady));
        };
        let own = self.rules.classify.budget(&self.context);
        let budget = own.unwrap_or(&self.settings.tuning.budget);
        let Some(permit) = budget.withdraw() else {
            return Poll::Ready(End::Skipped(SkipReason::Denied));
        };
        permit.spend();
        let (classify, context) = (&self.rules.classify, &mut self.context);
        classify.repeat(context, hedge.attempt, self.attempts, &mut request);
        self.observer.attempt_started(&hedge.attempt);
        self.attempts += 1;
        self.settings.state.counters.hedges.count();
        hedge.send(request, &self.losers);
        hedge.poll(cx)
    }

    /// Disposes of the losers, and says in the outcome what it took if a hedge was sent.
    #[inline]
    pub(super) fn end(&mut self, winner: Attempt, good: bool, outcome: &mut Outcome<S, Req>) {
        self.ended = true;
        self.spare = None;
        let won = winner.kind() == AttemptKind::Hedge;
        self.settle(good, won);
        if !good {
            self.settings.state.counters.failed.count();
        }
        if self.stage > 0 {
            self.end_race(winner, outcome);
        }
        self.observer.finished(&winner);
    }

    #[cold]
    fn end_race(&mut self, winner: Attempt, outcome: &mut Outcome<S, Req>) {
        for hedge in std::mem::take(&mut self.hedges) {
            let attempt = hedge.attempt;
            if !hedge.lose(&self.losers) {
                self.skip(&attempt, SkipReason::NotReady);
            }
        }
        if winner.kind() == AttemptKind::Hedge {
            self.settings.state.counters.hedge_wins.count();
        }
        if self.attempts > 1 {
            let timing = self.timing.as_ref();
            let delay = timing.and_then(|timing| timing.delay(&self.settings, 0));
            let info = HedgeInfo::new(winner, self.attempts, delay.unwrap_or_default());
            self.rules.classify.attach(outcome, info);
        }
    }
}

impl<S, C, R, O, A, L, Req> Drop for Race<S, C, R, O, A, L, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
    A: Elsewhere<S, Req>,
    L: Losers<S::Future>,
{
    fn drop(&mut self) {
        if !self.ended {
            self.settle(false, false);
            for hedge in self.hedges.iter().filter(|hedge| !hedge.is_sent()) {
                self.skip(&hedge.attempt, SkipReason::NotReady);
            }
            self.settings.state.counters.cancelled.count();
            self.observer.cancelled();
        }
    }
}
