mod bucket;
mod limited;
mod partitions;
mod permit;
#[cfg(feature = "tower")]
mod tower;

use std::fmt;
use std::sync::Arc;
#[cfg(not(all(test, tower_attempt_loom)))]
use std::sync::atomic::AtomicU64;

#[cfg(all(test, tower_attempt_loom))]
use loom::sync::atomic::AtomicU64;

use self::limited::{DEFAULT_BURST, DEFAULT_PER_SECOND, DEFAULT_RATIO, Limited, Settings};
pub use self::partitions::Budgets;
pub use self::permit::Permit;
use crate::BuildError;

/// An allowance of extra attempts, shared by everything that draws on it.
///
/// # Why a budget and not only a limit on attempts
///
/// With three attempts per call, a backend that starts to fail gets three times its load, just
/// when it can take the least. A budget bounds the extra load as a share of the calls, whatever
/// their number: with a ratio of 0.2, a backend that fails every call sees 1.2 times its load,
/// not 3.
///
/// Retries without a budget can also keep a backend overloaded after it is back. In the `metastable` figure a
/// server at 90 % load stops for 10 s. It recovers 20 s later without retries, 23 s later with the default
/// budget, and never with three attempts and no budget: 2,700 attempts per second keep it busy with
/// requests that have timed out.
///
/// # How it counts
///
/// A token bucket: an extra attempt takes one token, each [deposit](Self::deposit) gives back
/// `ratio` tokens, and `per_second` come back with time, up to `burst`. In any interval of length
/// t, under any concurrency:
///
/// > extra attempts ≤ `burst` + `per_second` · t + `ratio` · deposits (+ permits already held when it began)
///
/// A call deposits once, whatever stack it runs through: the outermost layer takes the budget
/// with `.budget(b)`, which deposits and spends, inner ones take a clone with
/// `.shared_budget(b)`, which only spends. Extra attempts never deposit.
///
/// For several destinations there is [`Budgets`], for gRPC's own way of counting
/// [`grpc_throttle`](Self::grpc_throttle).
///
/// # Default
///
/// [`Budget::default`] is `ratio(0.2)` with 10 tokens per second and a burst of 100, and starts
/// with 100 tokens (20 % and 10/s as in Finagle and linkerd2).
///
/// # Cost
///
/// One `AtomicU64`. A deposit into a full bucket is a relaxed load; any other operation is a
/// compare-and-swap, and reads the clock only if `per_second` is not 0. No lock is taken.
/// Clones share the allowance; a setter makes a new one.
///
/// ```
/// use tower_attempt::Budget;
///
/// let budget = Budget::ratio(0.2).burst(2);
/// budget.withdraw().unwrap().spend();
/// drop(budget.withdraw().unwrap()); // not spent: comes back
/// budget.withdraw().unwrap().spend();
/// assert!(budget.withdraw().is_none());
///
/// for _ in 0..5 {
///     budget.deposit();
/// }
/// assert!(budget.withdraw().is_some());
/// ```
#[derive(Clone)]
pub struct Budget(Option<Arc<Limited>>);

impl Budget {
    /// `ratio` extra attempts per deposit, from 0 to 10; 0 tokens per second, a burst of 100,
    /// 10 tokens at the start.
    ///
    /// Fractions count to the millionth, rounded down.
    #[must_use]
    pub fn ratio(ratio: f64) -> Self {
        Self::limited(Settings {
            ratio,
            per_second: 0,
            burst: DEFAULT_BURST,
            initial: None,
            is_throttle: false,
        })
    }

    /// No bound on extra attempts but the layer's own.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self(None)
    }

    /// gRPC's retry throttle, `retryThrottling` in its service config: no extra attempt while too many
    /// attempts fail for those that go well.
    ///
    /// A count starts at `max_tokens`, from 1 to 1,000. Each [failed attempt](Self::record_failure) takes
    /// 1 off, down to 0, and each [deposit](Self::deposit), one per call that went well, adds
    /// `token_ratio`, at least 0.001, up to `max_tokens`. Extra attempts are allowed while the
    /// count is above half of `max_tokens`, and take nothing. The ratio counts to the thousandth,
    /// rounded down.
    ///
    /// For clients that must behave as gRPC's own do, with one per server name (see [`Budgets`]). Elsewhere
    /// [`ratio`](Self::ratio) is the better choice, since a throttle is a switch and not an allowance:
    /// while it is open, nothing but the layer's own limit bounds the extra attempts; it closes after
    /// half of `max_tokens` failures in a row; and only successes open it again, never time.
    ///
    /// Source: [gRFC A6], "Throttling Retry Attempts and Hedged RPCs", whose example is 10 tokens with a
    /// ratio of 0.1; the upper end of 1,000 is grpc-go's.
    ///
    /// [gRFC A6]: https://github.com/grpc/proposal/blob/master/A6-client-retries.md
    ///
    /// ```
    /// use tower_attempt::Budget;
    ///
    /// let budget = Budget::grpc_throttle(10, 0.1);
    /// for _ in 0..5 {
    ///     assert!(budget.withdraw().is_some());
    ///     budget.record_failure();
    /// }
    /// assert!(budget.withdraw().is_none()); // 5 is not above half of 10
    ///
    /// budget.deposit();
    /// assert!(budget.withdraw().is_some()); // 5.1 is
    /// ```
    #[must_use]
    pub fn grpc_throttle(max_tokens: u32, token_ratio: f64) -> Self {
        Self::limited(Settings {
            ratio: token_ratio,
            per_second: 0,
            burst: max_tokens,
            initial: Some(max_tokens),
            is_throttle: true,
        })
    }

    /// Tokens that come back per second whatever the calls do, from 0 to 10,000.
    ///
    /// A floor for services with few calls. This and the setters below have an effect on
    /// [`ratio`](Self::ratio) and the default only.
    #[must_use]
    pub fn per_second(self, per_second: u32) -> Self {
        self.change(|settings| settings.per_second = per_second)
    }

    /// The most tokens that can be saved up, at least 1.
    ///
    /// So many extra attempts may go out at once after a quiet time.
    #[must_use]
    pub fn burst(self, burst: u32) -> Self {
        self.change(|settings| settings.burst = burst)
    }

    /// Tokens at the start, at most the burst.
    ///
    /// # Default
    ///
    /// Ten seconds of [`per_second`](Self::per_second), at least 10, and at most the burst. So the default budget
    /// of a retry layer starts with 100 tokens and that of a hedge layer with 10, also when they are written out.
    #[must_use]
    pub fn initial(self, initial: u32) -> Self {
        self.change(|settings| settings.initial = Some(initial))
    }

    /// Checks the settings. The layers' `build()` calls this.
    ///
    /// # Errors
    ///
    /// A ratio that is not a number from 0 to 10, more than 10,000 per second, a burst of 0, and
    /// an initial amount above the burst. Of a throttle: tokens that are not from 1 to 1,000, and a
    /// ratio that is not a number of at least 0.001.
    pub fn validate(&self) -> Result<(), BuildError> {
        let limited = self.0.as_ref();
        limited.map_or(Ok(()), |limited| limited.settings.validate())
    }

    /// Extra attempts per deposit, from 0 to 10, where this is what the allowance is in the long run.
    ///
    /// `None` where it is not: for [`unlimited`](Self::unlimited) and [`grpc_throttle`](Self::grpc_throttle).
    ///
    /// ```
    /// use tower_attempt::Budget;
    ///
    /// assert_eq!(Budget::ratio(0.05).share(), Some(0.05));
    /// assert_eq!(Budget::unlimited().share(), None);
    /// ```
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        let settings = self.0.as_ref()?.settings;
        (!settings.is_throttle).then_some(settings.ratio)
    }

    /// Whether `share` extra attempts per deposit may be paid for in the long run. `false` if a
    /// [`ratio`](Self::ratio) is smaller and no tokens come back with time.
    ///
    /// ```
    /// use tower_attempt::Budget;
    ///
    /// assert!(Budget::ratio(0.05).may_pay(0.05));
    /// assert!(!Budget::ratio(0.05).may_pay(0.1));
    /// assert!(Budget::ratio(0.05).per_second(1).may_pay(0.1));
    /// ```
    #[must_use]
    pub fn may_pay(&self, share: f64) -> bool {
        let limited = self.0.as_ref();
        limited.is_none_or(|limited| limited.settings.may_pay(share))
    }

    /// A call counts: gives back `ratio` tokens.
    #[inline]
    pub fn deposit(&self) {
        if let Some(limited) = &self.0 {
            limited.bucket.deposit(|| limited.now());
        }
    }

    /// An attempt failed in a way that a retry may mend, or was told not to be repeated: every one,
    /// also the last of its call and one that is not repeated.
    ///
    /// Comes before the [`withdraw`](Self::withdraw) for its repeat. Counts for
    /// [`grpc_throttle`](Self::grpc_throttle) and is nothing to the other kinds.
    #[inline]
    pub fn record_failure(&self) {
        if let Some(limited) = &self.0
            && limited.settings.is_throttle
        {
            limited.bucket.record_failure();
        }
    }

    /// Takes one token for an extra attempt, or says that there is none.
    ///
    /// Of a throttle nothing is taken, and nothing goes back with the permit.
    #[must_use = "an unspent permit gives its token back when dropped"]
    pub fn withdraw(&self) -> Option<Permit> {
        let Some(limited) = &self.0 else {
            return Some(Permit(None));
        };
        match limited.settings.is_throttle {
            true => limited.bucket.is_above_half().then_some(Permit(None)),
            false => {
                let is_taken = limited.bucket.withdraw(|| limited.now());
                is_taken.then(|| Permit(Some(Arc::clone(limited))))
            }
        }
    }

    /// Extra attempts that could be sent now: whole tokens, `u32::MAX` of [`unlimited`](Self::unlimited)
    /// and of a throttle that allows them.
    ///
    /// Takes nothing, so that it denies no concurrent call its token. Another call may take the tokens
    /// before this one does.
    ///
    /// ```
    /// use tower_attempt::Budget;
    ///
    /// let budget = Budget::ratio(0.2).burst(2);
    /// let permit = budget.withdraw();
    /// assert_eq!(budget.available(), 1);
    /// drop(permit);
    /// assert_eq!(budget.available(), 2);
    /// ```
    #[must_use]
    pub fn available(&self) -> u32 {
        match &self.0 {
            Some(limited) if limited.settings.is_throttle => match limited.bucket.is_above_half() {
                true => u32::MAX,
                false => 0,
            },
            Some(limited) => limited.bucket.available(limited.now()),
            None => u32::MAX,
        }
    }

    /// A budget with the same settings and its initial tokens.
    fn fresh(&self) -> Self {
        let limited = self.0.as_ref();
        limited.map_or(Self(None), |limited| Self::limited(limited.settings))
    }

    fn limited(settings: Settings) -> Self {
        Self(Some(Arc::new(Limited::new(settings))))
    }

    fn change(self, set: impl FnOnce(&mut Settings)) -> Self {
        match self.0.as_ref().map(|limited| limited.settings) {
            Some(mut settings) if !settings.is_throttle => {
                set(&mut settings);
                Self::limited(settings)
            }
            _ => self,
        }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::ratio(DEFAULT_RATIO).per_second(DEFAULT_PER_SECOND)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(limited) => f.debug_tuple("Budget").field(&limited.settings).finish(),
            None => f.write_str("Budget::unlimited()"),
        }
    }
}

#[cfg(test)]
#[cfg(tower_attempt_loom)]
mod models;
#[cfg(test)]
#[cfg(not(tower_attempt_loom))]
mod tests;
