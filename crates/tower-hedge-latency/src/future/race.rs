mod ending;
mod failing;
mod hedging;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tower_attempt::{Attempt, Budget, Deadline, Mode, Observe, Record, Requests};

use super::hedge::Hedge;
use super::timing::{Due, Timing};
use crate::elsewhere::Destinations;
use crate::losers::Holds;
use crate::settings::Settings;
use crate::{Event, SkipReason};

/// The state of a call, except its first attempt and its timer.
pub(crate) struct Race<F, S, P, O, A, L, Req>
where
    P: Requests<Req>,
    O: Observe,
    A: Destinations,
    L: Holds<F>,
{
    protocol: P,
    record: O::Record,
    elsewhere: A,
    losers: L,
    settings: Arc<Settings>,
    context: P::Context,
    deadline: Deadline,
    /// Whether the request may be hedged, so that the call is recorded and counted.
    watched: bool,
    timing: Timing,
    /// The source of hedges; `None` if no further hedge is possible.
    spare: Option<Spare<S, P::Saved, A::Call>>,
    /// The number of hedges that came due, sent or not.
    stage: u32,
    /// The number of attempts sent, the first one included.
    attempts: u32,
    /// In flight, the oldest first.
    hedges: Vec<Hedge<S, L::Attempt, Req>>,
    /// An attempt failed, so the next hedge is due immediately.
    hurry: bool,
    /// The end of the waits that servers demanded.
    earliest: Option<Instant>,
    /// Whether the last outcome was a success; after the end, whether the call succeeded.
    succeeded: bool,
    /// Whether the last outcome was a retryable failure.
    is_retryable: bool,
    ended: bool,
}

/// The service and the request from which hedges are made.
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

impl<F, S, P, O, A, L, Req> Race<F, S, P, O, A, L, Req>
where
    P: Requests<Req>,
    O: Observe,
    A: Destinations,
    L: Holds<F>,
{
    #[expect(clippy::too_many_arguments, reason = "each becomes a field")]
    #[inline]
    pub(crate) fn new(
        protocol: P,
        record: O::Record,
        elsewhere: A,
        losers: L,
        settings: Arc<Settings>,
        context: P::Context,
        deadline: Deadline,
        watched: bool,
        timing: Timing,
        spare: Option<Spare<S, P::Saved, A::Call>>,
    ) -> Self {
        if !watched && settings.tuning.mode != Mode::Off {
            settings.state.counters.ineligible.count();
        }
        Self {
            protocol,
            record,
            elsewhere,
            losers,
            settings,
            context,
            deadline,
            watched,
            timing,
            spare,
            stage: 0,
            attempts: 1,
            hedges: Vec::new(),
            hurry: false,
            earliest: None,
            succeeded: false,
            is_retryable: false,
            ended: false,
        }
    }

    /// The time of the next hedge; never if no hedge is possible or the deadline has passed.
    pub(super) fn due(&self) -> Due {
        // A hedge that was due before the deadline may be polled after it.
        if self.spare.is_none() || !self.deadline.leaves(Duration::ZERO) {
            return Due::Never;
        }
        let due = self.timing.due(&self.settings, self.stage);
        due.before(&self.deadline)
    }

    /// Polls the first attempt in its scope.
    #[inline]
    pub(super) fn poll_primary<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.record.enter(Attempt::PRIMARY, poll)
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

    fn budget(&self) -> &Budget {
        let own = self.protocol.budget(&self.context);
        own.unwrap_or(&self.settings.tuning.budget)
    }

    fn skip(&mut self, attempt: Attempt, reason: SkipReason) {
        self.settings.state.counters.skip(reason);
        self.record.send(Event::HedgeSkipped { attempt, reason });
    }
}
