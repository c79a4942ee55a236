use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Instant;
use tower_attempt::{Attempt, Classify, Deadline, Replays, Rules};
use tower_service::Service;

use super::Outcome;
use super::hedge::Hedge;
use crate::settings::Settings;
use crate::{HedgeInfo, Observer};

/// All of a call but its first attempt and its timer.
pub(crate) struct Race<S, C, R, O, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    rules: Rules<C, R>,
    observer: O,
    settings: Arc<Settings>,
    context: C::Context,
    deadline: Deadline,
    /// `None` if this call is not hedged, or not any more.
    spare: Option<Spare<S, R::Saved>>,
    /// How many hedges came due, sent or not.
    stage: u32,
    /// How many attempts were sent, the first included.
    attempts: u32,
    /// In flight, the oldest first.
    hedges: Vec<Hedge<S, Req>>,
    ended: bool,
}

/// What hedges are made from.
pub(crate) struct Spare<S, V> {
    service: S,
    saved: V,
    /// When the call began.
    start: Instant,
}

impl<S, V> Spare<S, V> {
    pub(crate) fn new(service: S, saved: V) -> Self {
        Self {
            service,
            saved,
            start: Instant::now(),
        }
    }
}

/// When the next hedge is due.
pub(super) enum Due {
    Now,
    At(Instant),
    Never,
}

impl<S, C, R, O, Req> Race<S, C, R, O, Req>
where
    S: Service<Req> + Clone,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    pub(crate) fn new(
        rules: Rules<C, R>,
        observer: O,
        settings: Arc<Settings>,
        context: C::Context,
        spare: Option<Spare<S, R::Saved>>,
    ) -> Self {
        observer.attempt_started(&Attempt::PRIMARY);
        if spare.is_some() && settings.deposits {
            settings.budget.deposit();
        }
        let deadline = rules.classify.deadline(&context);
        Self {
            deadline: deadline.unwrap_or(Deadline::NEVER),
            rules,
            observer,
            settings,
            context,
            spare,
            stage: 0,
            attempts: 1,
            hedges: Vec::new(),
            ended: false,
        }
    }

    pub(super) fn due(&self) -> Due {
        let Some(spare) = &self.spare else {
            return Due::Never;
        };
        match self.settings.due(self.stage) {
            None => Due::Never,
            Some(delay) if delay.is_zero() => Due::Now,
            Some(delay) => match spare.start.checked_add(delay) {
                Some(due) if self.deadline.is_after(due) => Due::At(due),
                _ => Due::Never,
            },
        }
    }

    /// Adds the hedge that is due, unless the budget has no token for it anyway.
    pub(super) fn add_hedge(&mut self) {
        self.stage += 1;
        let attempt = Attempt::hedge(self.stage + 1);
        if self.settings.budget.withdraw().is_none() {
            self.observer.hedge_denied(&attempt);
            return;
        }
        let replays = &self.rules.replays;
        let next = match self.settings.due(self.stage) {
            Some(_) => self.spare.as_ref().and_then(|spare| {
                let request = replays.again(&spare.saved, attempt)?;
                Some((spare.service.clone(), request))
            }),
            None => self.spare.take().and_then(|spare| {
                let request = replays.last(spare.saved, attempt)?;
                Some((spare.service, request))
            }),
        };
        if let Some((service, request)) = next {
            self.hedges.push(Hedge::new(attempt, service, request));
        }
    }

    /// The first good answer among the hedges.
    ///
    /// One that failed is dropped: the first attempt's failure is what the caller gets to see if
    /// they all fail.
    pub(super) fn poll_hedges(&mut self, cx: &mut Context<'_>) -> Poll<(Attempt, Outcome<S, Req>)> {
        let mut next = 0;
        while let Some(hedge) = self.hedges.get_mut(next) {
            let was_sent = hedge.is_sent();
            let polled = hedge.poll(cx, &self.settings.budget, &self.observer);
            self.attempts += u32::from(hedge.is_sent() && !was_sent);
            let Poll::Ready(outcome) = polled else {
                next += 1;
                continue;
            };
            let attempt = self.hedges.remove(next).attempt;
            if let Some(outcome) = outcome {
                if self.is_good(&attempt, &outcome) {
                    return Poll::Ready((attempt, outcome));
                }
                self.observer.attempt_failed(&attempt);
            }
        }
        Poll::Pending
    }

    /// Whether the first attempt's outcome ends the race.
    ///
    /// Without others in flight any outcome does: repeating is not this layer's business, and a
    /// hedge whose service is not ready is no reason to wait.
    pub(super) fn is_decided_by(&self, outcome: &Outcome<S, Req>) -> bool {
        !self.has_sent() || self.is_good(&Attempt::PRIMARY, outcome)
    }

    pub(super) fn has_sent(&self) -> bool {
        self.hedges.iter().any(Hedge::is_sent)
    }

    pub(super) fn primary_failed(&self) {
        self.observer.attempt_failed(&Attempt::PRIMARY);
    }

    /// Drops the losers, and says in the outcome what it took if a hedge was sent.
    pub(super) fn end(&mut self, winner: Attempt, outcome: &mut Outcome<S, Req>) {
        self.hedges.clear();
        self.spare = None;
        self.ended = true;
        self.observer.finished(&winner);
        if self.attempts > 1 {
            let delay = self.settings.due(0).unwrap_or_default();
            let info = HedgeInfo::new(winner, self.attempts, delay);
            self.rules.classify.attach(outcome, info);
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    fn is_good(&self, attempt: &Attempt, outcome: &Outcome<S, Req>) -> bool {
        let classify = &self.rules.classify;
        !classify
            .classify(&self.context, attempt, outcome)
            .is_retry()
    }
}

impl<S, C, R, O, Req> Drop for Race<S, C, R, O, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    fn drop(&mut self) {
        if !self.ended {
            self.observer.cancelled();
        }
    }
}
