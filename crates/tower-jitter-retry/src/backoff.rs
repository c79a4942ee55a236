mod schedule;
#[cfg(feature = "tower")]
mod tower;

use std::time::Duration;

use tower_attempt::{BuildError, RetryReason};

pub use self::schedule::Schedule;
pub(crate) use self::schedule::Seeds;
use crate::Jitter;

/// The delays before retries.
///
/// # Default
///
/// Exponential from 100 ms by a factor of 2 up to 20 s with full jitter, as in the standard mode of the AWS SDK for
/// Java 2.x.
///
/// ```
/// use std::time::Duration;
/// use tower_jitter_retry::{Backoff, Jitter};
///
/// let (base, cap) = (Duration::from_millis(100), Duration::from_secs(1));
/// let delays = Backoff::exponential(base, cap).jitter(Jitter::None).schedule();
/// let millis: Vec<_> = delays.take(5).map(|delay| delay.as_millis()).collect();
/// assert_eq!(millis, [100, 200, 400, 800, 1000]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    /// `None` means linear growth.
    factor: Option<f64>,
    /// Base after a throttled request; used by exponential backoffs only.
    throttled_base: Duration,
    jitter: Jitter,
    seed: Option<u64>,
}

/// The default base, as in the standard mode of the AWS SDK for Java 2.x.
const BASE: Duration = Duration::from_millis(100);
/// The default cap, as in the standard mode of the AWS SDK for Java 2.x.
const CAP: Duration = Duration::from_secs(20);
/// The default base after a throttled request, as in the standard mode of the AWS SDK for Java 2.x.
const THROTTLED_BASE: Duration = Duration::from_secs(1);

impl Backoff {
    /// Exponential backoff: the delay before retry n, counted from 0, is `base · factorⁿ`, and at most `cap`. By
    /// default, the actual delay is random, between zero and that delay: see [jitter](Self::jitter).
    ///
    /// `base` must be at most `cap`. The factor is 2 unless [set](Self::factor). After a
    /// [throttled](crate::RetryReason::Throttled) request, [`throttled_base`](Self::throttled_base) can replace `base`.
    #[must_use]
    pub fn exponential(base: Duration, cap: Duration) -> Self {
        let factor = Some(2.0);
        Self {
            factor,
            ..Self::linear(base, cap)
        }
    }

    /// Linear backoff: the delay before retry n, counted from 0, is `step · (n + 1)`, and at most `cap`. By
    /// default, the actual delay is random, between zero and that delay: see [jitter](Self::jitter).
    ///
    /// `step` must be at most `cap`.
    #[must_use]
    pub fn linear(step: Duration, cap: Duration) -> Self {
        Self {
            base: step,
            cap,
            factor: None,
            throttled_base: THROTTLED_BASE,
            jitter: Jitter::default(),
            seed: None,
        }
    }

    /// Constant backoff: every delay is `delay`, unless a jitter is [set](Self::jitter).
    #[must_use]
    pub fn constant(delay: Duration) -> Self {
        Self::linear(delay, delay).jitter(Jitter::None)
    }

    /// No delay. Usually, the call only yields to the executor once before a retry.
    ///
    /// Use it where each attempt reaches a different server. Immediate retries to a single server can overload it.
    #[must_use]
    pub fn none() -> Self {
        Self::constant(Duration::ZERO)
    }

    /// The factor by which an exponential backoff grows with each retry: a finite number, at least 1. Other backoffs
    /// and [`Jitter::Decorrelated`] ignore it.
    ///
    /// # Default
    ///
    /// 2.
    #[must_use]
    pub fn factor(mut self, value: f64) -> Self {
        self.factor = self.factor.map(|_| value);
        self
    }

    /// The base of an exponential backoff after a [throttled](crate::RetryReason::Throttled) request. A value below the
    /// usual base has no effect. Other backoffs ignore this setting.
    ///
    /// # Default
    ///
    /// 1 s, as in the standard mode of the AWS SDK for Java 2.x, and never above the cap.
    #[must_use]
    pub fn throttled_base(mut self, value: Duration) -> Self {
        self.throttled_base = value;
        self
    }

    /// The jitter strategy.
    ///
    /// # Default
    ///
    /// [`Jitter::Full`]; [`Jitter::None`] for a [constant](Self::constant) backoff.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The seed of the jitter. With a seed, every [schedule](Self::schedule) of this backoff has the same delays.
    ///
    /// A retry layer does not use that one schedule for all calls. It derives a series of different schedules from the
    /// seed. A call usually takes the next schedule of the series when it prepares its first retry. When a gRPC
    /// pushback sets the delay, the call takes a further schedule of the series.
    ///
    /// # Default
    ///
    /// A random seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Returns an endless sequence of delays, also for use outside of tower.
    ///
    /// With a [seed](Self::seed), every schedule has the same delays. Otherwise each schedule has its own jitter.
    #[must_use]
    pub fn schedule(&self) -> Schedule {
        Schedule::new(*self, self.seeds().next())
    }

    /// Checks the settings. [`RetryLayerBuilder::build`](crate::RetryLayerBuilder::build) calls this.
    ///
    /// # Errors
    ///
    /// Returns an error if the cap is below the base or step, or if the factor is below 1 or not finite. A backoff that
    /// was not checked still never exceeds its cap.
    pub fn validate(&self) -> Result<(), BuildError> {
        if self.cap < self.base {
            let bound = format!("at least the first delay of {:?}", self.base);
            return Err(BuildError::new("backoff.cap", self.cap, bound));
        }
        match self.factor {
            Some(factor) if !(1.0..f64::INFINITY).contains(&factor) => {
                let bound = "finite and at least 1";
                Err(BuildError::new("backoff.factor", factor, bound))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn seeds(&self) -> Seeds {
        Seeds::new(self.seed)
    }

    /// The delay before the 0-based `retry`, given the previous delay.
    fn delay(
        &self,
        retry: u32,
        reason: RetryReason,
        previous: Option<Duration>,
        random: u64,
    ) -> Duration {
        let ceiling = self.ceiling(retry, reason);
        match self.jitter {
            Jitter::None => ceiling,
            Jitter::Full => crate::jitter::share(ceiling, random),
            Jitter::Equal => {
                let half = ceiling / 2;
                half + crate::jitter::share(ceiling - half, random)
            }
            Jitter::Decorrelated => {
                let base = self.ceiling(0, reason);
                // The base can grow between two retries, when the server starts to throttle.
                let previous = previous.unwrap_or(base).max(base);
                let spread = previous.saturating_mul(3) - base;
                let delay = base.saturating_add(crate::jitter::share(spread, random));
                delay.min(self.cap)
            }
        }
    }
    /// The delay without jitter, at most the cap.
    fn ceiling(&self, retry: u32, reason: RetryReason) -> Duration {
        let grown = match (self.factor, reason) {
            (None, _) => self.base.saturating_mul(retry.saturating_add(1)),
            (Some(factor), RetryReason::Throttled) => {
                power(self.base.max(self.throttled_base), factor, retry)
            }
            (Some(factor), _) => power(self.base, factor, retry),
        };
        grown.min(self.cap)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::exponential(BASE, CAP)
    }
}

/// `base · factorⁿ` in floating point. For a factor of 2, results up to 2⁵² ns (52 days) are exact.
fn power(base: Duration, factor: f64, n: u32) -> Duration {
    // Zero times infinity is not a number.
    if base.is_zero() {
        return Duration::ZERO;
    }
    let n = i32::try_from(n).unwrap_or(i32::MAX);
    Duration::try_from_secs_f64(base.as_secs_f64() * factor.powi(n)).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
