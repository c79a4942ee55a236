use std::time::Duration;

use tower_attempt::{Budget, BuildError};

use crate::estimator::QuantileTarget;

/// The default quantile, above which the slowest 5 % of requests lie (Dean and Barroso, *The Tail at Scale*).
const QUANTILE: f64 = 0.95;
/// The default minimum delay: the resolution of tokio's timers, which round up to a millisecond.
const MIN_DELAY: Duration = Duration::from_millis(1);
/// The default window: long enough for a stable estimate at a hundred calls per second, and short enough to follow most
/// changes of the service within half a minute.
const WINDOW: Duration = Duration::from_secs(10);
/// A percentile of fewer samples is noise. A high percentile needs ten samples beyond it.
const MIN_SAMPLES: u64 = 100;
const SAMPLES_BEYOND: u64 = 10;
/// One billion.
const WHOLE: u64 = 1_000_000_000;

/// The settings of a trigger that is learned from live latencies. A field of type `Option` is `None` if its setting was
/// not given.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Percentile {
    pub(crate) quantile: Option<f64>,
    pub(crate) min_delay: Option<Duration>,
    pub(crate) max_delay: Option<Duration>,
    pub(crate) initial_delay: Option<Duration>,
    pub(crate) window: Option<Duration>,
    /// Whether the builder was given a key. The key itself is stored in the protocol. The builder's `finish` resets
    /// this flag, because a handle's `retune` checks the settings of a built layer but not its key.
    pub(crate) has_key: bool,
}

/// The bounds on a learned delay.
#[derive(Clone, Debug)]
pub(crate) struct DelayBounds {
    min: Duration,
    max: Duration,
    /// The hedge delay to use while the estimator knows no threshold. `None` means that no hedge is due until it knows
    /// one.
    initial: Option<Duration>,
}

impl Percentile {
    /// Checks the settings, also against each other, and an explicit quantile against an explicit budget.
    pub(crate) fn validate(&self, budget: Option<&Budget>) -> Result<(), BuildError> {
        let (quantile, window) = (self.quantile(), self.window());
        if !(quantile > 0.0 && quantile < 1.0) {
            let bound = "above 0 and below 1: 0.95 is the 95th percentile";
            return Err(BuildError::new("percentile", quantile, bound));
        }
        if window.is_zero() {
            return Err(BuildError::new("window", window, "longer than nothing"));
        }
        let DelayBounds { min, max, .. } = self.bounds();
        if max < min {
            let bound = format!("at least the min_delay of {min:?}");
            return Err(BuildError::new("max_delay", max, bound));
        }
        // If both the quantile and a budget with a ratio are explicit, the ratio must be at least the share of calls
        // above the quantile, unless the budget has tokens per second.
        let share = self.share();
        let budget = budget.filter(|budget| !budget.may_pay(share));
        let (Some(quantile), Some(ratio)) = (self.quantile, budget.and_then(Budget::share)) else {
            return Ok(());
        };
        let millionths = |share: f64| (share * 1e6).round() / 1e6;
        let (affordable, needed) = (millionths(1.0 - ratio), millionths(share));
        let bound = format!(
            "at least {affordable} with a budget.ratio of {ratio}, or the ratio at least {needed}"
        );
        Err(BuildError::new("percentile", quantile, bound))
    }

    /// Returns the quantile to learn, and the minimum duration and number of samples of a window.
    ///
    /// If the budget's ratio is above 0 but pays for fewer hedges than the default quantile needs, the quantile rises.
    /// The tokens then usually go to the slowest calls and not to the first late ones. An explicit quantile stays.
    pub(crate) fn target(&self, budget: &Budget) -> QuantileTarget {
        let wanted = self.share();
        // A budget that refills only with time pays for no particular share of the calls.
        let affordable = budget.share().filter(|ratio| *ratio > 0.0);
        let affordable = affordable.filter(|_| self.quantile.is_none());
        let above = billionths(affordable.map_or(wanted, |ratio| ratio.min(wanted)));
        QuantileTarget {
            above,
            window: micros(self.window()),
            samples: MIN_SAMPLES.max((SAMPLES_BEYOND * WHOLE).div_ceil(above)),
        }
    }

    /// Combines the settings of `given` with the settings of `self` that `given` leaves out.
    pub(crate) fn overridden_by(&self, given: &Self) -> Self {
        Self {
            quantile: given.quantile.or(self.quantile),
            min_delay: given.min_delay.or(self.min_delay),
            max_delay: given.max_delay.or(self.max_delay),
            initial_delay: given.initial_delay.or(self.initial_delay),
            window: given.window.or(self.window),
            has_key: false,
        }
    }

    /// The share of calls above the quantile, which is the given one or the default.
    pub(crate) fn share(&self) -> f64 {
        1.0 - self.quantile()
    }

    fn quantile(&self) -> f64 {
        self.quantile.unwrap_or(QUANTILE)
    }

    fn window(&self) -> Duration {
        self.window.unwrap_or(WINDOW)
    }

    /// Rejects settings of a percentile together with the `setter` of another trigger.
    pub(crate) fn validate_unset(&self, setter: &str) -> Result<(), BuildError> {
        // The quantile is not listed: its setter also sets the trigger, so `OneOf` already rejects it together
        // with another trigger.
        for (field, is_set) in [
            ("min_delay", self.min_delay.is_some()),
            ("max_delay", self.max_delay.is_some()),
            ("initial_delay", self.initial_delay.is_some()),
            ("window", self.window.is_some()),
            ("key", self.has_key),
        ] {
            if is_set {
                return Err(BuildError::besides(field, setter));
            }
        }
        Ok(())
    }

    /// Returns the bounds on the learned delay: the given ones, or the defaults.
    pub(crate) fn bounds(&self) -> DelayBounds {
        DelayBounds {
            min: self.min_delay.unwrap_or(MIN_DELAY),
            max: self.max_delay.unwrap_or(Duration::MAX),
            initial: self.initial_delay,
        }
    }
}

impl DelayBounds {
    /// Returns the delay before the first hedge, given the estimator's threshold in microseconds.
    #[inline]
    pub(crate) fn delay(&self, threshold: Option<u64>) -> Option<Duration> {
        let delay = match threshold {
            Some(micros) => Duration::from_micros(micros),
            None => self.initial?,
        };
        // Not `clamp`, which panics if the minimum is above the maximum.
        Some(delay.max(self.min).min(self.max))
    }
}

/// Converts a time to whole microseconds. Saturates after about 585,000 years.
pub(crate) fn micros(time: Duration) -> u64 {
    let whole = time.as_secs().saturating_mul(1_000_000);
    whole.saturating_add(time.subsec_micros().into())
}

/// Converts a share to billionths, at least one.
fn billionths(share: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "shares are from 0 to 1, and the cast saturates"
    )]
    let billionths = (share * 1e9).round() as u64;
    billionths.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn percentile(quantile: f64) -> Percentile {
        Percentile {
            quantile: Some(quantile),
            ..Percentile::default()
        }
    }

    fn target(quantile: f64, budget: &Budget) -> QuantileTarget {
        percentile(quantile).target(budget)
    }

    #[test]
    fn the_default_quantile_is_never_lower_than_the_budget_can_pay_for_and_an_explicit_one_stays() {
        let default = |budget| Percentile::default().target(&budget).above;
        assert_eq!(default(Budget::unlimited()), 50_000_000);
        assert_eq!(default(Budget::ratio(0.2)), 50_000_000);
        assert_eq!(default(Budget::ratio(0.02)), 20_000_000);
        assert_eq!(default(Budget::ratio(0.0).per_second(10)), 50_000_000);
        let set = |budget| target(0.9, &budget).above;
        assert_eq!(set(Budget::unlimited()), 100_000_000);
        assert_eq!(set(Budget::ratio(0.02).per_second(1)), 100_000_000);
    }

    #[test]
    fn a_higher_percentile_takes_more_samples() {
        let samples = |quantile| target(quantile, &Budget::unlimited()).samples;
        assert_eq!(samples(0.5), 100);
        assert_eq!(samples(0.9), 100);
        assert_eq!(samples(0.95), 200);
        assert_eq!(samples(0.99), 1000);
        assert_eq!(samples(1.0 - f64::EPSILON), 10_000_000_000);
    }

    #[test]
    fn the_delay_stays_within_its_bounds() {
        let percentile = Percentile {
            min_delay: Some(ms(5)),
            max_delay: Some(ms(500)),
            initial_delay: Some(ms(50)),
            ..Percentile::default()
        };
        let delays =
            [None, Some(0), Some(20_000), Some(u64::MAX)].map(|t| percentile.bounds().delay(t));
        assert_eq!(delays, [50, 5, 20, 500].map(|millis| Some(ms(millis))));
        let bare = Percentile::default().bounds();
        assert_eq!(bare.delay(None), None);
        assert_eq!(bare.delay(Some(10)), Some(ms(1)));
    }

    #[test]
    fn a_wrong_value_is_named_with_its_bound() {
        let error = |percentile: Percentile| percentile.validate(None).unwrap_err().to_string();
        for quantile in [0.0, 1.0, -0.5, 95.0, f64::NAN, f64::INFINITY] {
            assert_eq!(
                error(percentile(quantile)),
                format!(
                    "percentile is {quantile:?}, but must be above 0 and below 1: 0.95 is the 95th percentile"
                )
            );
        }
        let window = Percentile {
            window: Some(Duration::ZERO),
            ..Percentile::default()
        };
        assert_eq!(
            error(window),
            "window is 0ns, but must be longer than nothing"
        );
        let crossed = Percentile {
            min_delay: Some(ms(20)),
            max_delay: Some(ms(10)),
            ..Percentile::default()
        };
        assert_eq!(
            error(crossed),
            "max_delay is 10ms, but must be at least the min_delay of 20ms"
        );
    }

    #[test]
    fn the_longest_times_saturate() {
        assert_eq!(micros(Duration::MAX), u64::MAX);
        assert_eq!(micros(Duration::from_nanos(1_999)), 1);
    }
}
