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

use self::limited::{
    BudgetSettings, DEFAULT_BURST, DEFAULT_PER_SECOND, DEFAULT_RATIO, LimitedBudget,
};
pub use self::partitions::Budgets;
pub use self::permit::Permit;
use crate::BuildError;

/// An allowance of extra attempts, shared by all layers that draw on it.
///
/// # Why a budget, and not only a maximum number of attempts
///
/// With three attempts per call, a backend that starts to fail receives up to three times its load, just when it can
/// handle the least. A budget with a ratio limits the extra attempts that take a token. In the long run, they are at
/// most a share of the successful calls, plus a number per second. With a ratio of 0.2 and no tokens per second, these
/// attempts add in the long run at most 20 % to the load, not 200 %.
///
/// Retries without a budget can also keep a backend overloaded after the end of an outage. In the `metastable`
/// simulation of `examples/figures`, a server at 90 % load stops for 10 s. After this outage it recovers within 20 s
/// without retries, and within 23 s with the default budget. With three attempts and no budget it does not recover
/// within 90 s: 2,700 attempts per second keep it busy with requests that have timed out.
///
/// # How it counts
///
/// A budget with a ratio is a token bucket. An extra attempt takes one token, except a call's first retry after
/// [`Verdict::Unprocessed`](crate::Verdict::Unprocessed). Each [deposit](Self::deposit) adds `ratio` tokens, and each
/// second adds `per_second` tokens, up to `burst`. In any interval of length t, under any concurrency:
///
/// > spent tokens ≤ `burst` + `per_second` · t + `ratio` · deposits (+ permits already held when the interval began)
///
/// A successful call should deposit once, however many layers it passes. So give the outermost layer the budget with
/// `.budget(b)`, which deposits and spends. Give inner layers a clone with `.shared_budget(b)`, which never deposits.
///
/// Use [`Budgets`] for several destinations, and [`grpc_throttle`](Self::grpc_throttle) to count as gRPC's own clients
/// do.
///
/// # Default
///
/// [`Budget::default`] is `ratio(0.2)` with 10 tokens per second, a burst of 100 and 100 initial tokens. Finagle and
/// linkerd2 also use 20 % and 10 per second.
///
/// # Cost
///
/// The tokens are one `AtomicU64`, without a lock. An operation is usually one or two relaxed loads and at most one
/// compare-and-swap. It reads the clock only if `per_second` is not 0. A deposit into a full bucket is usually only a
/// load. A withdrawal that takes a token also clones an `Arc`. Clones share the tokens; a budget changed by a setter
/// has its own tokens.
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
pub struct Budget(Option<Arc<LimitedBudget>>);

impl Budget {
    /// A budget of `ratio` extra attempts per deposit. The ratio is from 0 to 10. It is rounded down to a millionth.
    ///
    /// The budget has a burst of 100, 10 initial tokens, and no tokens per second. So it is not the default budget with
    /// another ratio: [`per_second`](Self::per_second) adds tokens for a service with few successes.
    #[must_use]
    pub fn ratio(ratio: f64) -> Self {
        Self::limited(BudgetSettings {
            ratio,
            per_second: 0,
            burst: DEFAULT_BURST,
            initial: None,
            is_throttle: false,
        })
    }

    /// A budget without a limit: it allows every extra attempt.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self(None)
    }

    /// gRPC's retry throttle (`retryThrottling` in its service config): too many failures stop extra attempts.
    ///
    /// The throttle's count starts at `max_tokens`, from 1 to 1,000. Each [recorded failure](Self::record_failure)
    /// subtracts 1, down to 0. Each [deposit](Self::deposit), one per successful call, adds `token_ratio`, up to
    /// `max_tokens`. The ratio is at least 0.001 and is rounded down to a thousandth. Extra attempts are allowed while
    /// the count is above half of `max_tokens`. They take no tokens. The throttle never rejects a call's first retry
    /// after [`Verdict::Unprocessed`](crate::Verdict::Unprocessed).
    ///
    /// Use it in clients that must behave as gRPC's own do, with one throttle per server name (see [`Budgets`]).
    /// Otherwise prefer [`ratio`](Self::ratio), because a throttle is a switch and not an allowance:
    ///
    /// - While it allows extra attempts, it does not limit their number.
    /// - After at most `max_tokens / 2` (rounded up) recorded failures in a row, it rejects extra attempts.
    /// - Successful calls lift this rejection; time alone does not.
    ///
    /// A layer records no failure for an attempt that the caller drops or that the call's deadline ends.
    ///
    /// Source: [gRFC A6], "Throttling Retry Attempts and Hedged RPCs". Its example has 10 tokens and a ratio of 0.1.
    /// The maximum of 1,000 is that in grpc-go.
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
        Self::limited(BudgetSettings {
            ratio: token_ratio,
            per_second: 0,
            burst: max_tokens,
            initial: Some(max_tokens),
            is_throttle: true,
        })
    }

    /// Tokens that return per second, from 0 to 10,000, in addition to the deposits.
    ///
    /// Set it for services with few calls. This setter, [`burst`](Self::burst) and [`initial`](Self::initial) have no
    /// effect on [`unlimited`](Self::unlimited) and [`grpc_throttle`](Self::grpc_throttle).
    ///
    /// # Default
    ///
    /// 0; 10 in [`Budget::default`].
    #[must_use]
    pub fn per_second(self, per_second: u32) -> Self {
        self.change(|settings| settings.per_second = per_second)
    }

    /// Maximum number of tokens, at least 1.
    ///
    /// A full budget pays for this number of extra attempts in a burst.
    ///
    /// # Default
    ///
    /// 100.
    #[must_use]
    pub fn burst(self, burst: u32) -> Self {
        self.change(|settings| settings.burst = burst)
    }

    /// Number of tokens at the start, at most the burst.
    ///
    /// # Default
    ///
    /// Ten seconds of [`per_second`](Self::per_second), at least 10, and at most the burst. A retry layer's default
    /// budget has 10 tokens per second, so it starts with 100 tokens. The default budget of a hedge layer with a
    /// percentile has 0 per second, so it starts with 10. A budget of your own with the same settings starts with the
    /// same number.
    #[must_use]
    pub fn initial(self, initial: u32) -> Self {
        self.change(|settings| settings.initial = Some(initial))
    }

    /// Checks the settings. The layers' `build()` calls this.
    ///
    /// # Errors
    ///
    /// Returns an error in these cases:
    ///
    /// - `ratio` is not a number from 0 to 10, `per_second` is above 10,000, `burst` is 0, or `initial` is above the
    ///   burst.
    /// - In a throttle, `max_tokens` is not from 1 to 1,000, or `token_ratio` is not a finite number of at least 0.001.
    pub fn validate(&self) -> Result<(), BuildError> {
        let limited = self.0.as_ref();
        limited.map_or(Ok(()), |limited| limited.settings.validate())
    }

    /// Returns the [`ratio`](Self::ratio) of extra attempts per deposit, as it was given.
    ///
    /// Returns `None` for [`unlimited`](Self::unlimited) and [`grpc_throttle`](Self::grpc_throttle), which have no such
    /// ratio.
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

    /// Whether the budget may be able to pay for `share` extra attempts per deposit in the long run.
    ///
    /// Returns `false` only if the [`ratio`](Self::ratio) is below `share` and no tokens return with time.
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

    /// Adds `ratio` tokens, up to the burst. A throttle adds `token_ratio` to its count, up to `max_tokens`.
    ///
    /// A layer that deposits calls this once for each successful call. If the budget has a ratio, a hedge layer
    /// deposits only for requests that may be hedged.
    #[inline]
    pub fn deposit(&self) {
        if let Some(limited) = &self.0 {
            limited.bucket.deposit(|| limited.now());
        }
    }

    /// Records an attempt that failed in a retryable way, or for which the server forbade a retry.
    ///
    /// Call this for every such attempt, even if no retry follows. If a retry follows, call this before the retry's
    /// [`withdraw`](Self::withdraw). Do not call this if the attempt is retried immediately after
    /// [`Verdict::Unprocessed`](crate::Verdict::Unprocessed). That retry also needs no `withdraw`. Only a
    /// [`grpc_throttle`](Self::grpc_throttle) counts failures.
    #[inline]
    pub fn record_failure(&self) {
        if let Some(limited) = &self.0
            && limited.settings.is_throttle
        {
            limited.bucket.record_failure();
        }
    }

    /// Takes one token for an extra attempt. Returns `None` if less than one token remains, or if a throttle rejects
    /// extra attempts.
    ///
    /// The permit of a throttle or of an unlimited budget holds no token.
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

    /// Returns the number of extra attempts that the budget allows now, which is its number of whole tokens.
    ///
    /// Returns `u32::MAX` for [`unlimited`](Self::unlimited) and for a throttle that allows extra attempts, and 0 for a
    /// throttle that rejects them.
    ///
    /// No token is reserved, so a concurrent call may take the tokens first.
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

    /// Returns a new budget with the same settings and the initial tokens.
    fn fresh(&self) -> Self {
        let limited = self.0.as_ref();
        limited.map_or(Self(None), |limited| Self::limited(limited.settings))
    }

    /// Whether both budgets share their tokens, or both are unlimited.
    #[cfg(feature = "http")]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }

    fn limited(settings: BudgetSettings) -> Self {
        Self(Some(Arc::new(LimitedBudget::new(settings))))
    }

    fn change(self, set: impl FnOnce(&mut BudgetSettings)) -> Self {
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
