use tokio::time::Instant;

use super::bucket::{self, Bucket};
use super::settings::Settings;
use crate::BuildError;

/// A bucket with the clock that refills it.
pub(super) struct Limited {
    settings: Settings,
    /// Time in the bucket counts from here.
    epoch: Instant,
    bucket: Bucket,
}

impl Limited {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            epoch: Instant::now(),
            bucket: settings.bucket(),
            settings,
        }
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings
    }

    pub(super) fn validate(&self) -> Result<(), BuildError> {
        self.settings.validate()
    }

    #[inline]
    pub(super) fn deposit(&self) {
        self.bucket.deposit(|| self.now());
    }

    pub(super) fn withdraw(&self) -> bool {
        self.bucket.withdraw(|| self.now())
    }

    pub(super) fn refund(&self) {
        self.bucket.refund();
    }

    /// Whether a new one would have no more: this one is full, or as it was at first.
    pub(super) fn is_idle(&self) -> bool {
        self.bucket.is_idle(self.now())
    }

    pub(super) fn available(&self) -> u32 {
        self.bucket.available(self.now())
    }

    pub(super) fn word(&self) -> u64 {
        self.bucket.load()
    }

    /// The bucket's clock, which stands still where no tokens come back with time.
    fn now(&self) -> u64 {
        match self.settings.per_second {
            0 => 0,
            per_second => bucket::units(self.epoch.elapsed(), per_second),
        }
    }
}
