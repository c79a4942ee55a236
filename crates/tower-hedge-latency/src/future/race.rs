//! The state of a call, and the times of its hedges.

mod ending;
mod hedging;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tower_attempt::{Attempt, Budget, Deadline, Observe, Record, Requests};

use crate::class::Class;
use crate::settings::Settings;
use crate::{Event, SkipReason, StopReason};

/// A delay of this many seconds or more counts as never. Instants near the end of their range would overflow in tokio's
/// timer.
const CENTURY: u64 = 100 * 366 * 24 * 3600;

/// The state of a call, except its first attempt, the failure of that attempt, and the timer.
pub(crate) struct Race<H, S, P: Requests<Req>, O: Observe, A, L, Req> {
    pub(crate) protocol: P,
    pub(crate) record: O::Record,
    pub(crate) destination: A,
    pub(crate) losers: L,
    pub(crate) settings: Arc<Settings>,
    pub(crate) context: P::Context,
    pub(crate) deadline: Deadline,
    /// Whether the request may be hedged. The trigger learns only from such calls.
    pub(crate) watched: bool,
    pub(crate) start: Instant,
    /// The call's class. `None` stands for the class that all requests without a class of their own share.
    pub(crate) class: Option<Arc<Class>>,
    /// The class's delay when the call began: the learned delay, or the initial delay.
    pub(crate) learned: Option<Duration>,
    /// The copies of the service and the request for hedges. `None` means that no hedge is made.
    pub(crate) spare: Option<(S, P::Saved)>,
    /// The number of hedges that came due, sent or not.
    pub(crate) stage: u32,
    /// The number of attempts sent, the first one included.
    pub(crate) attempts: u32,
    /// The hedges that are in flight or wait for their service, the oldest first.
    pub(crate) hedges: Vec<DueHedge<S, H, Req>>,
    /// Whether the next hedge is due immediately, because an attempt failed.
    pub(crate) hurry: bool,
    /// The instant before which no hedge is sent, because the verdict on a failed attempt demanded a wait.
    pub(crate) earliest: Option<Instant>,
    /// The 0-based index of the hedge that a demanded wait moved, and that hedge's new time. Later hedges keep their
    /// distance to that hedge.
    pub(crate) moved: Option<(u32, Instant)>,
    /// Whether this layer has not recorded the first attempt's failure on the shared budget. If the layer above
    /// receives the failure, that layer decides whether to record it. Otherwise this layer records it when the call
    /// ends.
    pub(crate) unrecorded: bool,
    /// The latency of the first attempt, if it failed and the call waits for hedges.
    pub(crate) failed_after: Option<Duration>,
    /// The stop reason if the call ends with the outcome that was classified last.
    pub(crate) reason: StopReason,
    pub(crate) ended: bool,
}

/// A hedge that came due.
pub(crate) struct DueHedge<S, H, Req> {
    attempt: Attempt,
    state: HedgeState<S, H, Req>,
}

enum HedgeState<S, H, Req> {
    /// Waits for its own instance of the service.
    Readying(S, Req),
    /// Boxed, because the future is pinned and the list of hedges moves its elements.
    Sent(Pin<Box<Option<H>>>),
}

impl<S, H, Req> DueHedge<S, H, Req> {
    fn is_sent(&self) -> bool {
        matches!(self.state, HedgeState::Sent(_))
    }
}

impl<H, S, P: Requests<Req>, O: Observe, A, L, Req> Race<H, S, P, O, A, L, Req> {
    /// The time of the next hedge; `None` if no further hedge comes due before the deadline, or if the deadline has
    /// passed.
    pub(super) fn due(&self) -> Option<Instant> {
        // The deadline may have passed since the timer was set.
        if self.spare.is_none() || !self.deadline.leaves(Duration::ZERO) {
            return None;
        }
        self.due_at(self.stage)
    }

    /// The time at which the 0-based `hedge` is due; `None` if it is not due before the deadline.
    fn due_at(&self, hedge: u32) -> Option<Instant> {
        let delay = self.delay(hedge)?;
        let due = match self.moved {
            None => later(self.start, delay),
            Some((moved, instant)) => {
                let offset = self.delay(moved).unwrap_or_default();
                later(instant, delay.saturating_sub(offset))
            }
        };
        due.filter(|due| self.deadline.is_after(*due))
    }

    /// The offset from the start at which the trigger makes the 0-based `hedge` due; `None` if there is no such hedge
    /// or no delay is known.
    fn delay(&self, hedge: u32) -> Option<Duration> {
        self.settings.due(hedge, self.learned)
    }

    fn class(&self) -> &Class {
        self.settings.class(self.class.as_deref())
    }

    pub(super) fn has_sent(&self) -> bool {
        self.hedges.iter().any(DueHedge::is_sent)
    }

    /// Whether a due hedge waits for its service.
    fn is_readying(&self) -> bool {
        self.hedges.iter().any(|hedge| !hedge.is_sent())
    }

    /// Whether a hedge may be sent now: before the deadline, and not during a demanded wait.
    fn may_send(&self) -> bool {
        let is_over = |earliest| earliest <= Instant::now();
        self.deadline.leaves(Duration::ZERO) && self.earliest.is_none_or(is_over)
    }

    /// Whether the request's body was interrupted for this attempt.
    fn is_interrupted(&self, attempt: Attempt) -> bool {
        self.attempt_ended(attempt, false)
    }

    /// If `is_over` is true, gives the other attempts precedence for the rest of the request's body. Returns whether the
    /// body was interrupted for this attempt.
    fn attempt_ended(&self, attempt: Attempt, is_over: bool) -> bool {
        let ended =
            |(_, saved): &(S, P::Saved)| self.protocol.attempt_ended(saved, attempt, is_over);
        self.spare.as_ref().is_some_and(ended)
    }

    fn budget(&self) -> &Budget {
        let own = self.protocol.budget(&self.context);
        own.unwrap_or(&self.settings.budget)
    }

    fn skip(&mut self, attempt: Attempt, reason: SkipReason) {
        self.settings.counters.skip(reason);
        self.record.send(Event::HedgeSkipped { attempt, reason });
        self.drop_unused_copies();
    }

    /// Drops the copies if the first attempt is alone and no further hedge comes due.
    fn drop_unused_copies(&mut self) {
        if self.hedges.is_empty() && self.due().is_none() {
            self.spare = None;
        }
    }
}

/// Returns `start + delay`; `None` means never.
fn later(start: Instant, delay: Duration) -> Option<Instant> {
    match delay.as_secs() < CENTURY {
        true => start.checked_add(delay),
        false => None,
    }
}
