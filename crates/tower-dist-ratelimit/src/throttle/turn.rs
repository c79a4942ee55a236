use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{
    Gate,
    lines::{Outlook, Place, Spacing, Supply, Turned},
};
use crate::{
    Algorithm, Decision, Reason,
    limits::{Asked, Limits, Outcome, Question, Waiting},
};

/// A request on its way to its turn.
pub(super) struct Turn {
    pub(super) question: Question,
    /// When it came; not asked for if it passes at once.
    started: Option<Instant>,
    /// None until it has to wait for tokens.
    place: Option<Place>,
    step: Step,
}

/// What it waits for. Timers are boxed, because most requests need none.
enum Step {
    /// The store's answer.
    Store(Waiting),
    /// Those before it, but not for ever.
    Others(Pin<Box<Sleep>>),
    /// The tokens.
    Tokens(Pin<Box<Sleep>>),
    /// It may go, unless there is a reason.
    Done(Option<Reason>),
}

impl From<Turned> for Step {
    fn from(turned: Turned) -> Self {
        Self::Done(Some(match turned {
            Turned::Full => Reason::QueueFull,
            Turned::TooLong => Reason::TooLong,
        }))
    }
}

impl Turn {
    /// Starts on the way, and may be there at once.
    pub(super) fn new<Req>(gate: &Gate<Req>, request: &Req) -> Self {
        let mut turn = Self {
            question: Question::default(),
            started: None,
            place: None,
            step: Step::Done(None),
        };
        let look = gate.calls.look(request);
        turn.step = match gate.calls.limits.prepare(&mut turn.question, look) {
            Err(reason) => Step::Done(Some(reason)),
            Ok(_) if gate.lines.any() && !gate.calls.limits.shadow && turn.can_pass(gate) => {
                match turn.join_others(gate) {
                    Some(step) => step,
                    None => turn.ask(gate),
                }
            }
            Ok(_) => turn.ask(gate),
        };
        turn
    }

    /// Whether there will ever be as many tokens. Who asks for more need not wait to hear that there will not.
    fn can_pass<Req>(&self, gate: &Gate<Req>) -> bool {
        let rules = &gate.calls.limits.rules;
        let mut asked = self.question.asked.iter();
        asked.all(|asked| asked.cost <= rules[asked.rule].quota(asked).burst_size())
    }

    /// What came of it, if that is known already.
    pub(super) fn done(&self) -> Option<Outcome<()>> {
        match self.step {
            Step::Done(reason) => Some(reason.map_or(Outcome::Pass(()), Outcome::Reject)),
            _ => None,
        }
    }

    /// How long it has waited in a line, if it has.
    pub(super) fn waited(&self) -> Option<Duration> {
        self.place.as_ref()?;
        self.started.map(|started| started.elapsed())
    }

    pub(super) fn poll<Req>(
        &mut self,
        gate: &Gate<Req>,
        cx: &mut Context<'_>,
    ) -> Poll<Outcome<()>> {
        loop {
            if let Some(outcome) = self.done() {
                return Poll::Ready(outcome);
            }
            self.step = match &mut self.step {
                Step::Store(answer) => {
                    let limits = &gate.calls.limits;
                    let outcome = answer.poll(limits, &mut self.question, cx);
                    self.next(gate, ready!(outcome))
                }
                Step::Others(end) => {
                    let first = self.place.as_ref().map(|place| place.poll_first(cx));
                    if first.is_none_or(|first| first.is_ready()) {
                        self.ask(gate)
                    } else {
                        ready!(end.as_mut().poll(cx));
                        Turned::TooLong.into()
                    }
                }
                Step::Tokens(due) => {
                    ready!(due.as_mut().poll(cx));
                    self.ask(gate)
                }
                Step::Done(reason) => Step::Done(*reason),
            }
        }
    }

    fn ask<Req>(&mut self, gate: &Gate<Req>) -> Step {
        let outcome = gate.calls.limits.ask(&mut self.question);
        self.next(gate, outcome)
    }

    fn next<Req>(&mut self, gate: &Gate<Req>, outcome: Outcome<()>) -> Step {
        let delay = gate.calls.limits.delay(&self.question);
        match outcome {
            Outcome::Pass(()) if delay.is_zero() => Step::Done(None),
            Outcome::Pass(()) => {
                let due = Instant::now().checked_add(delay);
                // A queue is not longer than the longest wait, but the store has taken its time.
                let end = self.end(gate) + gate.calls.limits.timeout;
                if due.is_some_and(|due| due <= end) {
                    Step::Done(None)
                } else {
                    gate.calls.limits.take_back(&self.question, None);
                    Turned::TooLong.into()
                }
            }
            Outcome::Reject(reason) if gate.calls.limits.shadow => Step::Done(Some(reason)),
            Outcome::Reject(reason @ (Reason::Quota | Reason::ReducedCapacity)) => {
                match self.question.retry_after() {
                    Some(wait) => self.wait(gate, wait),
                    None => Step::Done(Some(reason)),
                }
            }
            Outcome::Reject(reason) => Step::Done(Some(reason)),
            Outcome::Later(answer) => {
                // Counts the store's time, too.
                self.started();
                Step::Store(answer)
            }
        }
    }

    /// Waits for tokens, or for others that do.
    fn wait<Req>(&mut self, gate: &Gate<Req>, wait: Duration) -> Step {
        let (now, end) = (Instant::now(), self.end(gate));
        let limits = &gate.calls.limits;
        let turn = now.checked_add(wait.saturating_add(queue(limits, &self.question)));
        if turn.is_none_or(|turn| turn > end) {
            return Turned::TooLong.into();
        }
        let due = now + wait;
        let outlook = outlook(limits, &self.question, now);
        if let Some(place) = &self.place {
            place.sees(outlook);
            return Step::Tokens(Box::pin(sleep_until(due)));
        }
        let spacing = spacing(limits, &self.question);
        match gate
            .lines
            .join(&line(&self.question), &spacing, outlook, end)
        {
            Ok((place, first)) => {
                self.place = Some(place);
                let until = if first { due } else { end };
                let timer = Box::pin(sleep_until(until));
                if first {
                    Step::Tokens(timer)
                } else {
                    Step::Others(timer)
                }
            }
            Err(turned) => turned.into(),
        }
    }

    /// Joins those who wait for the same, if there are any.
    fn join_others<Req>(&mut self, gate: &Gate<Req>) -> Option<Step> {
        let end = self.end(gate);
        let spacing = spacing(&gate.calls.limits, &self.question);
        let joined = gate
            .lines
            .join_others(&line(&self.question), &spacing, end)?;
        Some(match joined {
            Ok(place) => {
                self.place = Some(place);
                Step::Others(Box::pin(sleep_until(end)))
            }
            Err(turned) => turned.into(),
        })
    }

    fn started(&mut self) -> Instant {
        *self.started.get_or_insert_with(Instant::now)
    }

    /// The last moment at which the turn may come. At most an hour is added, so it is in range.
    fn end<Req>(&mut self, gate: &Gate<Req>) -> Instant {
        self.started() + gate.max_wait
    }
}

/// Who waits for the same: the policies that apply, and the keys. Nothing else makes the same bytes.
fn line(question: &Question) -> SmallVec<[u8; 128]> {
    let mut line = SmallVec::new();
    for asked in &question.asked {
        let key = asked.key(question.keys());
        line.extend_from_slice(&(asked.rule as u64).to_le_bytes());
        line.extend_from_slice(&(key.len() as u64).to_le_bytes());
        line.extend_from_slice(key);
    }
    line
}

/// How long a request still has to wait in a leaky queue that has rejected it, once there is a place: such a queue is full then.
fn queue(limits: &Limits, question: &Question) -> Duration {
    let decided = question.asked.iter().zip(question.decisions.iter());
    let rejected = decided.filter(|(_, decision)| !decision.allowed);
    let waits = rejected.map(
        |(asked, _)| match limits.rules[asked.rule].policy.algorithm() {
            Algorithm::LeakyQueue { max_wait } => max_wait,
            _ => Duration::ZERO,
        },
    );
    waits.max().unwrap_or_default()
}

/// How long the request's tokens take to come, at least.
fn spacing(limits: &Limits, question: &Question) -> Spacing {
    let asked = question.asked.iter();
    asked.map(|asked| time(limits, asked, asked.cost)).collect()
}

/// What a rejected request knows about those behind it.
fn outlook(limits: &Limits, question: &Question, now: Instant) -> Outlook {
    let decided = question.asked.iter().zip(question.decisions.iter());
    let supply = |(asked, decision): (&Asked, &Decision)| {
        if !decision.allowed {
            // Its tokens are the last ones then.
            let due = decision.retry_after.and_then(|wait| now.checked_add(wait));
            return Supply {
                from: due.unwrap_or(now),
                stock: Duration::ZERO,
            };
        }
        // What it leaves, and at most a token that is not whole yet.
        let left = decision.remaining.saturating_sub(asked.cost);
        let stock = time(limits, asked, left.saturating_add(1));
        Supply { from: now, stock }
    };
    decided.map(supply).collect()
}

/// How long this many tokens take to come, at least.
fn time(limits: &Limits, asked: &Asked, tokens: u64) -> Duration {
    let policy = &limits.rules[asked.rule].policy;
    if !policy.algorithm().is_bucket() {
        // Where tokens come in heaps, many can go at once.
        return Duration::ZERO;
    }
    let quota = asked.quota.unwrap_or(policy.quota());
    let nanos = quota.window().as_nanos().saturating_mul(tokens.into());
    let nanos = nanos / u128::from(quota.limit().max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
