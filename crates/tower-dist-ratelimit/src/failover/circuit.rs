use std::time::Duration;

use super::pauses::Pauses;

/// The number of consecutive failures that opens the circuit.
const ROW: u8 = 5;

/// Minimum number of recent results (decisions and failures) at which the failure rate can open the circuit.
const FEWEST: u64 = 10;

/// The state of a circuit breaker.
///
/// It reads no clock: the time since some origin and the random bits are arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Circuit {
    /// Requests may query the backend.
    Closed(RecentResults),
    /// Normally only probes may query the backend, one at a time.
    Open {
        /// The number of probes that queried the backend since the circuit opened, at most 255.
        probes: u8,
        /// The earliest time of the next probe.
        due: Duration,
    },
}

/// The recent decisions and failures of the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecentResults {
    /// Number of consecutive failures. The failures of requests that were in flight together normally count once.
    row: u8,
    /// The number of the half second that `now` covers. The failure rate covers this half second and the previous one.
    half: u64,
    now: Tally,
    before: Tally,
}

/// Decisions and failures of one half second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    failed: u64,
    all: u64,
}

impl Default for Circuit {
    fn default() -> Self {
        Self::Closed(RecentResults::default())
    }
}

impl Circuit {
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// Returns whether the circuit is closed and its recent results contain no failure.
    pub(super) fn is_clean(self) -> bool {
        matches!(self, Self::Closed(record) if record.row == 0 && record.failed() == 0)
    }

    /// Returns the present number of consecutive failures, or 0 while the circuit is open.
    pub(super) fn row(self) -> u8 {
        match self {
            Self::Closed(record) => record.row,
            Self::Open { .. } => 0,
        }
    }

    /// Counts the outcome of a request that was no probe. `row` is `None` for a decision. For a failure, it is the
    /// [`row`](Self::row) at the time when the request was sent.
    pub(super) fn count(&mut self, row: Option<u8>, now: Duration, pauses: Pauses, noise: u64) {
        let Self::Closed(record) = self else {
            // The request was usually sent before the circuit opened. So its outcome says little about the time since
            // then.
            return;
        };
        record.count(row, now);
        if row.is_some() && record.is_bad() {
            let due = now.saturating_add(pauses.after(0, noise));
            *self = Self::Open { probes: 0, due };
        }
    }

    /// Returns the circuit with a probe in flight, or `None` if no probe is due. If this probe gets no outcome, the
    /// next probe is due after this probe's timeout and a pause. So probes normally do not overlap, and the next probe
    /// can follow even if this probe is cancelled.
    pub(super) fn probe(self, now: Duration, pauses: Pauses, noise: u64) -> Option<Self> {
        match self {
            Self::Open { probes, due } if now >= due => {
                let probes = probes.saturating_add(1);
                let wait = pauses.timeout + pauses.after(probes, noise);
                let due = now.saturating_add(wait);
                Some(Self::Open { probes, due })
            }
            _ => None,
        }
    }

    /// Records that the probe has failed. The next probe is due after a pause from now, or when it was due without this
    /// failure, whichever is earlier.
    pub(super) fn probe_failed(&mut self, now: Duration, pauses: Pauses, noise: u64) {
        if let Self::Open { probes, due } = self {
            *due = (*due).min(now.saturating_add(pauses.after(*probes, noise)));
        }
    }

    /// Records that the probe was decided without the backend. A new probe is due immediately.
    pub(super) fn probe_spared(&mut self, now: Duration) {
        if let Self::Open { probes, due } = self {
            (*probes, *due) = (probes.saturating_sub(1), now);
        }
    }

    /// Returns the time until the next probe is due, or `None` if the circuit is closed.
    pub(super) fn open_for(self, now: Duration) -> Option<Duration> {
        match self {
            Self::Closed(_) => None,
            Self::Open { due, .. } => Some(due.saturating_sub(now)),
        }
    }
}

impl RecentResults {
    fn count(&mut self, failed: Option<u8>, now: Duration) {
        let half = now.as_secs() << 1 | u64::from(now.subsec_millis() / 500);
        // If another thread has already counted an outcome of a later half second, the present outcome counts in that
        // half second, too.
        if half > self.half {
            let follows = half == self.half + 1;
            self.before = if follows { self.now } else { Tally::default() };
            self.now = Tally::default();
            self.half = half;
        }
        self.now.all += 1;
        self.now.failed += u64::from(failed.is_some());
        // One event, such as the loss of a connection, can fail all requests in flight. So a failure raises the number
        // of consecutive failures only if that number is 0, or the same as when the request was sent.
        self.row = failed.map_or(0, |row| match row == self.row {
            true => self.row + 1,
            false => self.row.max(1),
        });
    }

    /// Returns whether these results open the circuit. Call it only if the latest result is a failure.
    fn is_bad(self) -> bool {
        let all = self.now.all + self.before.all;
        self.row >= ROW || (all >= FEWEST && 2 * self.failed() >= all)
    }

    fn failed(self) -> u64 {
        self.now.failed + self.before.failed
    }
}

#[cfg(test)]
mod tests;
