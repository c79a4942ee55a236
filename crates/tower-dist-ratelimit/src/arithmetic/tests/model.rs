//! A slow and simple model of each algorithm. Its numbers are exact, and it searches where the algorithm computes.

mod counted;
mod drained;

use self::{counted::Counted, drained::Drained};
use crate::{Algorithm, Quota};

/// The state of one key under one policy. Times are nanoseconds since the limiter's creation, and never go back.
#[derive(Clone, Debug)]
pub(super) struct Model {
    quota: Quota,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Used tokens drain evenly.
    Drained(Drained),
    /// Used tokens count until their time has passed.
    Counted(Counted),
}

/// The decision to expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) allowed: bool,
    pub(super) granted: u64,
    pub(super) remaining: u64,
    /// In nanoseconds.
    pub(super) delay: u64,
}

impl Model {
    /// An unused key. The windows of `algorithm` are not staggered.
    pub(super) fn new(algorithm: Algorithm, quota: Quota) -> Self {
        let kind = match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                Kind::Drained(Drained::bucket(quota))
            }
            Algorithm::LeakyQueue { max_wait } => Kind::Drained(Drained::queue(quota, max_wait)),
            windows => Kind::Counted(Counted::new(windows, quota)),
        };
        Self { quota, kind }
    }

    pub(super) fn decide(&self, nanos: u64, cost: u64, want: u64) -> Expected {
        let (free, delay) = match &self.kind {
            Kind::Drained(queue) if queue.is_queue() => {
                let places = queue.places(nanos);
                let allowed = cost == 0 || (places > 0 && cost <= self.quota.burst_size());
                let granted = if allowed { cost } else { 0 };
                let mut after = queue.clone();
                after.take(nanos, granted);
                return Expected {
                    allowed,
                    granted,
                    remaining: after.places(nanos),
                    delay: if granted > 0 { queue.delay(nanos) } else { 0 },
                };
            }
            Kind::Drained(bucket) => (bucket.free(nanos), 0),
            Kind::Counted(windows) => (windows.free(nanos), 0),
        };
        let granted = match cost {
            0 => 0,
            _ if cost > free => 0,
            _ => want.max(cost).min(free),
        };
        Expected {
            allowed: cost <= free,
            granted,
            remaining: free - granted,
            delay,
        }
    }

    /// The same windows and counts under another limit.
    pub(super) fn limited_to(self, limit: u64) -> Self {
        let quota = Quota::new(limit, self.quota.window());
        let kind = match self.kind {
            Kind::Counted(windows) => Kind::Counted(windows.limited_to(quota)),
            drained => drained,
        };
        Self { quota, kind }
    }

    pub(super) fn take(&mut self, nanos: u64, tokens: u64) {
        match &mut self.kind {
            Kind::Drained(one) => one.take(nanos, tokens),
            Kind::Counted(one) => one.take(nanos, tokens),
        }
    }

    pub(super) fn settle(&mut self, nanos: u64, delta: i64) {
        match &mut self.kind {
            Kind::Drained(one) => one.settle(nanos, delta),
            Kind::Counted(one) => one.settle(nanos, delta),
        }
    }

    /// Returns the first time from `nanos` on at which this cost is allowed, or `None` if it never is.
    pub(super) fn allowed_at(&self, nanos: u64, cost: u64) -> Option<u64> {
        if cost > self.quota.burst_size() {
            return None;
        }
        Some(first(nanos, |time| self.decide(time, cost, cost).allowed))
    }

    /// Returns the first time from `nanos` on at which nothing counts.
    pub(super) fn unused_at(&self, nanos: u64) -> u64 {
        first(nanos, |time| match &self.kind {
            Kind::Drained(one) => one.is_unused(time),
            Kind::Counted(one) => one.is_unused(time),
        })
    }
}

/// Returns the first time from `start` on at which a condition holds, which then holds for ever.
fn first(start: u64, is_so: impl Fn(u64) -> bool) -> u64 {
    if is_so(start) {
        return start;
    }
    let mut step = 1;
    while !is_so(start + step) {
        step *= 2;
    }
    let (mut not_yet, mut so) = (start + step / 2, start + step);
    while so - not_yet > 1 {
        let middle = not_yet + (so - not_yet) / 2;
        if is_so(middle) {
            so = middle;
        } else {
            not_yet = middle;
        }
    }
    so
}
