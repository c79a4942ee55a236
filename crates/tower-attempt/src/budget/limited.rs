use tokio::time::Instant;

use super::bucket::{self, Bucket};
use crate::BuildError;

/// Linkerd2's and Finagle's ratio: one extra attempt for five calls that went well.
pub(super) const DEFAULT_RATIO: f64 = 0.2;
/// Finagle's and linkerd2's floor, so that services with few calls can retry at all.
pub(super) const DEFAULT_PER_SECOND: u32 = 10;
/// Ten seconds of the floor, as in Finagle, whose tokens live for ten seconds.
pub(super) const DEFAULT_BURST: u32 = 100;
/// Tokens at the start for each one that comes back per second, so ten seconds of them, and without any as for one:
/// a service that starts slowly should not get a hundred hedges.
const DEFAULT_INITIAL: u32 = 10;

/// More extra attempts than calls make no sense as a protection; ten leaves room for fan-out.
const MAX_RATIO: f64 = 10.0;
/// Keeps the bucket's word from running over for 29 years; see `bucket`.
const MAX_PER_SECOND: u32 = 10_000;

/// What a limited budget was asked to be, checked or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) ratio: f64,
    pub(super) per_second: u32,
    pub(super) burst: u32,
    pub(super) initial: Option<u32>,
}

impl Settings {
    fn bucket(&self) -> Bucket {
        let floor = DEFAULT_INITIAL.saturating_mul(self.per_second.max(1));
        let initial = self.initial.unwrap_or(floor.min(self.burst));
        Bucket::new(self.ratio, self.burst, initial)
    }

    /// Whether `share` extra attempts per deposit may be paid for in the long run.
    pub(super) fn may_pay(&self, share: f64) -> bool {
        let units = |share| bucket::share(share, bucket::UNITS);
        self.per_second > 0 || units(self.ratio) >= units(share)
    }

    pub(super) fn validate(&self) -> Result<(), BuildError> {
        let Self {
            ratio,
            per_second,
            burst,
            initial,
        } = *self;
        if !(0.0..=MAX_RATIO).contains(&ratio) {
            let bound = "from 0 to 10 extra attempts per deposit";
            return Err(BuildError::new("budget.ratio", ratio, bound));
        }
        if per_second > MAX_PER_SECOND {
            let bound = "at most 10000; for no bound use Budget::unlimited()";
            return Err(BuildError::new("budget.per_second", per_second, bound));
        }
        if burst == 0 {
            let bound = "at least 1; to switch extra attempts off use Mode::Off";
            return Err(BuildError::new("budget.burst", burst, bound));
        }
        match initial {
            Some(initial) if initial > burst => {
                let bound = format!("at most the burst of {burst}");
                Err(BuildError::new("budget.initial", initial, bound))
            }
            _ => Ok(()),
        }
    }
}

/// A bucket with the clock that refills it.
pub(super) struct Limited {
    pub(super) settings: Settings,
    /// Time in the bucket counts from here.
    epoch: Instant,
    pub(super) bucket: Bucket,
}

impl Limited {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            epoch: Instant::now(),
            bucket: settings.bucket(),
            settings,
        }
    }

    #[inline]
    pub(super) fn deposit(&self) {
        self.bucket.deposit(|| self.now());
    }

    pub(super) fn withdraw(&self) -> bool {
        self.bucket.withdraw(|| self.now())
    }

    /// Whether a new one would have no more: this one is full, or as it was at first.
    pub(super) fn is_idle(&self) -> bool {
        self.bucket.is_idle(self.now())
    }

    pub(super) fn available(&self) -> u32 {
        self.bucket.available(self.now())
    }

    /// The bucket's clock, which stands still where no tokens come back with time.
    fn now(&self) -> u64 {
        match self.settings.per_second {
            0 => 0,
            per_second => bucket::units(self.epoch.elapsed(), per_second),
        }
    }
}
