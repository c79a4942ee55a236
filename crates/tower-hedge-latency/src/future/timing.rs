use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tower_attempt::Deadline;

use crate::class::Class;
use crate::estimator::Seen;
use crate::settings::Settings;
use crate::trigger::micros;

/// In seconds: nobody waits for longer.
const CENTURY: u64 = 100 * 366 * 24 * 3600;

/// When a call began, and when it is late.
pub(crate) struct Timing {
    start: Instant,
    /// `None`: the class of all the rest.
    class: Option<Arc<Class>>,
    /// What its class knew when it began.
    learned: Option<Duration>,
    /// The hedge that a server's pushback has moved, and the instant to which. Later hedges keep their distance to it.
    moved: Option<(u32, Instant)>,
    /// How long the first attempt took, if it has failed.
    failed_after: Option<Duration>,
}

/// When the next hedge is due.
pub(crate) enum Due {
    Now,
    At(Instant),
    Never,
}

impl Due {
    /// So long after `start`; `None` for never.
    pub(super) fn after(start: Instant, delay: Option<Duration>) -> Self {
        match delay {
            None => Self::Never,
            Some(Duration::ZERO) => Self::Now,
            // tokio's timer adds to it, which the end of the clock leaves no room for.
            Some(delay) if delay.as_secs() > CENTURY => Self::Never,
            Some(delay) => start.checked_add(delay).map_or(Self::Never, Self::At),
        }
    }

    /// Never, if the call's deadline comes first.
    pub(super) fn before(self, deadline: &Deadline) -> Self {
        match self {
            Self::At(due) if !deadline.is_after(due) => Self::Never,
            due => due,
        }
    }

    /// Whether a hedge that is due after this delay would be sent before the deadline.
    #[inline]
    pub(crate) fn is_in_time(start: Instant, delay: Option<Duration>, deadline: &Deadline) -> bool {
        // Most calls have no deadline, and need no sum to be compared with it.
        match *deadline {
            Deadline::NEVER => delay.is_some(),
            _ => !matches!(Self::after(start, delay).before(deadline), Self::Never),
        }
    }
}

impl Timing {
    #[inline]
    pub(crate) fn new(
        start: Instant,
        class: Option<Arc<Class>>,
        learned: Option<Duration>,
    ) -> Self {
        Self {
            start,
            class,
            learned,
            moved: None,
            failed_after: None,
        }
    }

    pub(super) fn class<'a>(&'a self, settings: &'a Settings) -> &'a Class {
        settings.class(self.class.as_deref())
    }

    /// When the 0-based `hedge` is due, as an offset from the start; `None` if there is none.
    pub(super) fn delay(&self, settings: &Settings, hedge: u32) -> Option<Duration> {
        settings.due(hedge, self.learned)
    }

    /// When the 0-based `hedge` is due.
    pub(super) fn due(&self, settings: &Settings, hedge: u32) -> Due {
        let delay = self.delay(settings, hedge);
        let (Some(delay), Some((moved, instant))) = (delay, self.moved) else {
            return Due::after(self.start, delay);
        };
        let distance = delay.saturating_sub(self.delay(settings, moved).unwrap_or_default());
        match Due::after(instant, Some(distance)) {
            Due::Now => Due::At(instant),
            due => due,
        }
    }

    /// Moves the 0-based `hedge` to `instant`, and those after it along.
    pub(super) fn move_to(&mut self, hedge: u32, instant: Instant) {
        self.moved = Some((hedge, instant));
    }

    pub(super) fn has_primary_failed(&self) -> bool {
        self.failed_after.is_some()
    }

    pub(super) fn primary_failed(&mut self) {
        self.failed_after = Some(self.start.elapsed());
    }

    /// What the first attempt shows when the call ends `now`, if it shows anything. `succeeded` says whether
    /// the call did, `overtaken` whether a hedge has won.
    ///
    /// An attempt that is overtaken is cancelled, so what it would have taken is never seen, only that
    /// it would have been more. What the winner took says nothing about first attempts. A failure
    /// before the trigger, and a caller that leaves before it, say nothing about how long an answer
    /// would have taken; after it they count as late, so that a service that stalls does not seem
    /// fast.
    pub(super) fn seen(&self, succeeded: bool, overtaken: bool, now: Instant) -> Option<Seen> {
        let out = now.saturating_duration_since(self.start);
        let (out, succeeded, overtaken) = match self.failed_after {
            Some(failed_after) => (failed_after, false, false),
            None => (out, succeeded, overtaken),
        };
        let is_late = || self.learned.is_some_and(|delay| out >= delay);
        match overtaken {
            true => Some(Seen::CutOff(micros(out))),
            false => (succeeded || is_late()).then(|| Seen::End(micros(out))),
        }
    }
}
