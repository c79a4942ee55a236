use tokio::time::Instant;

use super::bucket::{self, BudgetBucket};
use crate::BuildError;

/// The ratio of Linkerd2 and Finagle: one extra attempt for five deposits.
pub(super) const DEFAULT_RATIO: f64 = 0.2;
/// The tokens per second of Finagle and Linkerd2, for services with few calls.
pub(super) const DEFAULT_PER_SECOND: u32 = 10;
/// Ten seconds of the default tokens per second, as in Finagle, whose tokens live for ten seconds.
pub(super) const DEFAULT_BURST: u32 = 100;
/// Unless `initial` is set, a budget starts with ten times its tokens per second, at least these 10, and at most its
/// burst.
///
/// Without tokens per second, this default is at most 10, and not the default burst of 100. Otherwise a hedge layer
/// could send a hundred hedges to a service that is slow at first.
const DEFAULT_INITIAL: u32 = 10;

/// A ratio above 1 can allow more extra attempts than calls, and so protects little. Ten pays for a hedge layer with
/// `fan_out(11)`, which sends up to ten hedges per call.
const MAX_RATIO: f64 = 10.0;
/// At this rate, the bucket's clock takes 29 years to reach the end of its range, 2⁶³ units.
const MAX_PER_SECOND: u32 = 10_000;
/// The maximum of `maxTokens` in grpc-go.
const MAX_TOKENS: u32 = 1_000;
/// The smallest `tokenRatio` above 0 with three decimal places.
const MIN_RATIO: f64 = 0.001;

/// The settings of a budget. They may be out of range; `validate` checks them.
#[derive(Clone, Copy, Debug)]
pub(super) struct BudgetSettings {
    pub(super) ratio: f64,
    pub(super) per_second: u32,
    pub(super) burst: u32,
    pub(super) initial: Option<u32>,
    /// Whether this is gRPC's retry throttle. Then `ratio` is its `tokenRatio`, and `burst` is its `maxTokens`.
    pub(super) is_throttle: bool,
}

impl BudgetSettings {
    fn bucket(&self) -> BudgetBucket {
        let ratio = match self.is_throttle {
            // gRFC A6 supports up to three decimal places. The added 1e-3 corrects for binary fractions.
            true => (self.ratio * 1e3 + 1e-3).floor() / 1e3,
            false => self.ratio,
        };
        let floor = DEFAULT_INITIAL.saturating_mul(self.per_second.max(1));
        let initial = self.initial.unwrap_or(floor.min(self.burst));
        BudgetBucket::new(ratio, self.burst, initial)
    }

    /// Whether the budget may be able to pay for `share` extra attempts per deposit in the long run. Returns `false`
    /// only if its ratio is below `share` and no tokens return with time.
    pub(super) fn may_pay(&self, share: f64) -> bool {
        let units = |share| bucket::share(share, bucket::UNITS);
        self.is_throttle || self.per_second > 0 || units(self.ratio) >= units(share)
    }

    pub(super) fn validate(&self) -> Result<(), BuildError> {
        let (ratio, per_second, burst) = (self.ratio, self.per_second, self.burst);
        if self.is_throttle && !(1..=MAX_TOKENS).contains(&burst) {
            let bound = "from 1 to 1000 tokens";
            return Err(BuildError::new("budget.max_tokens", burst, bound));
        }
        if self.is_throttle && !(MIN_RATIO..=f64::MAX).contains(&ratio) {
            let bound = "at least 0.001 tokens per success";
            return Err(BuildError::new("budget.token_ratio", ratio, bound));
        }
        if !self.is_throttle && !(0.0..=MAX_RATIO).contains(&ratio) {
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
        match self.initial {
            Some(initial) if initial > burst => {
                let bound = format!("at most the burst of {burst}");
                Err(BuildError::new("budget.initial", initial, bound))
            }
            _ => Ok(()),
        }
    }
}

/// A bucket with the clock that refills it.
pub(super) struct LimitedBudget {
    pub(super) settings: BudgetSettings,
    /// The bucket's clock counts from this instant.
    epoch: Instant,
    pub(super) bucket: BudgetBucket,
}

impl LimitedBudget {
    pub(super) fn new(settings: BudgetSettings) -> Self {
        Self {
            epoch: Instant::now(),
            bucket: settings.bucket(),
            settings,
        }
    }

    /// Whether the bucket is full, or its word has the initial value. In both cases, it has at least as many tokens as
    /// a new bucket.
    pub(super) fn is_idle(&self) -> bool {
        self.bucket.is_idle(self.now())
    }

    /// Returns the time of the bucket's clock: the units that the tokens per second have refilled since `epoch`. It
    /// stays at 0 if no tokens return with time.
    pub(super) fn now(&self) -> u64 {
        match self.settings.per_second {
            0 => 0,
            per_second => bucket::units(self.epoch.elapsed(), per_second),
        }
    }
}
