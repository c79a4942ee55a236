//! The limits of a process that returns to the backend after it has decided alone.
//!
//! Processes return at random times. Without further rules, a process that has returned admits at the full rate of the
//! backend, while the others still admit their shares. Two rules prevent that:
//!
//! 1. For some time after its circuit closes, a process admits only requests that both the backend and its own share
//!    allow. All processes that have opened their circuits are assumed to close them by the end of that time.
//! 2. With the next request of a key, a process also charges the backend for the tokens that it has admitted alone,
//!    except under a leaky queue.
//!
//! **Buckets.** Let r be the rate, B the burst, and T the time when the last process returns. Take any interval D.
//! - Before the outage, and from T on, the backend charges each admitted request: at most B + r · (that part of D).
//! - In between, each of N processes is within its share, by rule 1: together at most N · (B/N + r/N · (that part of
//!   D)).
//!
//! The sum is at most 3 · B + r · D, and one probe per process. The sum does not depend on how long the processes take
//! to return.
//!
//! **Fixed windows.** Let L be the limit, and W a window of the backend. A share begins its window with a key's first
//! request. Each of its windows admits at most L/N.
//! - If the outage begins in W, the backend admits at most L before it. Only one window of each share begins in W.
//! - If the outage begins before W, parts of two windows of each share lie in W. The first one admits at most L/N.
//! - In both cases the backend and the last windows of the shares admit at most L together. Rule 2 charges those
//!   windows to the backend, and rule 1 keeps the backend from admitting before all processes have reported.
//!
//! The sum is at most 2 · L. If a process does not see the key again, the sum is higher by the tokens that it has
//! admitted alone.
//!
//! A process that received no requests during the outage does not know of it. It can admit all requests that the
//! backend allows while the others return.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::algorithm::saturating_nanos;

/// The times until which a process that has returned to the backend follows the two rules of this module: it also
/// charges requests to its share (rule 1), and reports the tokens that it has admitted alone (rule 2).
///
/// All accesses are relaxed, so a few requests can see old values.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// The time, in nanoseconds, until which this process reports tokens that it has admitted alone. Zero before the
    /// process first returns to the backend, and usually again after the recovery.
    unreported_until: AtomicU64,
    /// The time, in nanoseconds, until which requests are charged to the share, too.
    shared_until: AtomicU64,
}

impl Recovery {
    /// Returns `false` if the process may have returned to the backend recently. Costs one relaxed load.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.unreported_until.load(Relaxed) == 0
    }

    /// Records that the process has returned to the backend. All other processes are assumed to return within
    /// `all`. Tokens that this process has admitted alone are assumed to count for at most `retention`.
    pub(super) fn returned(&self, now: Duration, all: Duration, retention: Duration) {
        let until = |time| saturating_nanos(now.saturating_add(time)).max(1);
        self.shared_until.store(until(all), Relaxed);
        self.unreported_until
            .store(until(all.max(retention)), Relaxed);
    }

    /// Returns whether requests are charged to this process's share as well as to the backend. `None` if the process
    /// has not returned to the backend recently.
    pub(super) fn is_shared(&self, now: Duration) -> Option<bool> {
        let (now, until) = (saturating_nanos(now), self.unreported_until.load(Relaxed));
        if until <= now {
            // The exchange fails if the process has returned again meanwhile. Then the new time stays.
            let end = &self.unreported_until;
            let _ = end.compare_exchange(until, 0, Relaxed, Relaxed);
            return None;
        }
        Some(now < self.shared_until.load(Relaxed))
    }
}
