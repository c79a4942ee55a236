use std::time::Duration;

use crate::Quota;

/// A bucket or a queue, which drains at the quota's rate.
#[derive(Clone, Debug)]
pub(super) struct Drained {
    quota: Quota,
    /// The longest wait, if it is a queue.
    max_wait: Option<Duration>,
    /// The level: tokens times the window, so that each nanosecond drains the limit.
    level: u128,
    /// The time of the level.
    seen: u64,
}

impl Drained {
    pub(super) fn bucket(quota: Quota) -> Self {
        Self {
            quota,
            max_wait: None,
            level: 0,
            seen: 0,
        }
    }

    pub(super) fn queue(quota: Quota, max_wait: Duration) -> Self {
        Self {
            max_wait: Some(max_wait),
            ..Self::bucket(quota)
        }
    }

    pub(super) fn is_queue(&self) -> bool {
        self.max_wait.is_some()
    }

    fn window(&self) -> u128 {
        self.quota.window().as_nanos()
    }

    fn level(&self, nanos: u64) -> u128 {
        let drained = u128::from(nanos - self.seen) * u128::from(self.quota.limit());
        self.level.saturating_sub(drained)
    }

    pub(super) fn is_unused(&self, nanos: u64) -> bool {
        self.level(nanos) == 0
    }

    /// Returns the whole tokens in a bucket.
    pub(super) fn free(&self, nanos: u64) -> u64 {
        let used = self.level(nanos).div_ceil(self.window());
        let used = u64::try_from(used).unwrap_or(u64::MAX);
        self.quota.burst_size().saturating_sub(used)
    }

    /// Returns the wait of the next request in a queue, in nanoseconds.
    pub(super) fn delay(&self, nanos: u64) -> u64 {
        let delay = self.level(nanos).div_ceil(self.quota.limit().into());
        u64::try_from(delay).unwrap_or(u64::MAX)
    }

    /// Returns the number of further requests of one token that a queue takes.
    pub(super) fn places(&self, nanos: u64) -> u64 {
        let longest = self.max_wait.unwrap_or_default().as_nanos();
        let mut queue = self.clone();
        let mut places = 0;
        while u128::from(queue.delay(nanos)) <= longest {
            queue.take(nanos, 1);
            places += 1;
        }
        places
    }

    pub(super) fn take(&mut self, nanos: u64, tokens: u64) {
        self.level = self.level(nanos) + u128::from(tokens) * self.window();
        self.seen = nanos;
    }

    pub(super) fn settle(&mut self, nanos: u64, delta: i64) {
        let tokens = u128::from(delta.unsigned_abs()) * self.window();
        self.level = if delta < 0 {
            self.level(nanos).saturating_sub(tokens)
        } else {
            self.level(nanos) + tokens
        };
        self.seen = nanos;
    }
}
