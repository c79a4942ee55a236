use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tower_attempt::Deadline;

use crate::class::Class;
use crate::estimator::Seen;
use crate::settings::Settings;
use crate::trigger::micros;

/// In seconds; longer than any call.
const CENTURY: u64 = 100 * 366 * 24 * 3600;

/// The start of a call, and the times of its hedges.
pub(crate) struct Timing {
    start: Instant,
    /// The call's class; `None` is the class of all other requests.
    class: Option<Arc<Class>>,
    /// The delay that the class had learned when the call began.
    learned: Option<Duration>,
    /// The hedge that a server's pushback moved, and its new time. Later hedges keep their distance to it.
    moved: Option<(u32, Instant)>,
    /// The latency of the first attempt, if it failed.
    failed_after: Option<Duration>,
}

/// The time of the next hedge.
pub(crate) enum Due {
    Now,
    At(Instant),
    Never,
}

impl Due {
    /// The time `delay` after `start`; `None` means never.
    pub(super) fn after(start: Instant, delay: Option<Duration>) -> Self {
        match delay {
            None => Self::Never,
            Some(Duration::ZERO) => Self::Now,
            // A later deadline would overflow tokio's timer.
            Some(delay) if delay.as_secs() > CENTURY => Self::Never,
            Some(delay) => start.checked_add(delay).map_or(Self::Never, Self::At),
        }
    }

    /// Returns `Never` if the call's deadline comes first.
    pub(super) fn before(self, deadline: &Deadline) -> Self {
        match self {
            Self::At(due) if !deadline.is_after(due) => Self::Never,
            due => due,
        }
    }

    /// Whether a hedge that is due after this delay would be sent before the deadline.
    #[inline]
    pub(crate) fn is_in_time(start: Instant, delay: Option<Duration>, deadline: &Deadline) -> bool {
        // Most calls have no deadline, and need no addition.
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

    /// The time of the 0-based `hedge`, as an offset from the start; `None` if there is no such hedge.
    pub(super) fn delay(&self, settings: &Settings, hedge: u32) -> Option<Duration> {
        settings.due(hedge, self.learned)
    }

    /// The time of the 0-based `hedge`.
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

    /// Moves the 0-based `hedge` to `instant`, and later hedges by the same time.
    pub(super) fn move_to(&mut self, hedge: u32, instant: Instant) {
        self.moved = Some((hedge, instant));
    }

    pub(super) fn has_primary_failed(&self) -> bool {
        self.failed_after.is_some()
    }

    pub(super) fn primary_failed(&mut self) {
        self.failed_after = Some(self.start.elapsed());
    }

    /// The observation of the first attempt when the call ends `now`, if there is one. `succeeded`: the call succeeded.
    /// `overtaken`: a hedge won.
    ///
    /// An overtaken attempt is cancelled, so its latency is only known to be longer than its time in flight. The
    /// winner's latency is no observation of a first attempt. A failure before the trigger, or a caller that leaves
    /// before it, does not show how long a response would have taken. After the trigger both count as late, so that a
    /// stalled service does not seem fast.
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
