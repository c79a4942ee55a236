mod bucket;
mod limited;
mod permit;
mod settings;
#[cfg(feature = "tower")]
mod tower;

use std::fmt;
use std::sync::Arc;
#[cfg(not(all(test, tower_attempt_loom)))]
use std::sync::atomic::AtomicU64;

#[cfg(all(test, tower_attempt_loom))]
use loom::sync::atomic::AtomicU64;

use self::limited::Limited;
pub use self::permit::Permit;
use self::settings::{DEFAULT_BURST, DEFAULT_PER_SECOND, DEFAULT_RATIO, Settings};
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
/// # Default
///
/// [`Budget::default`] is `ratio(0.2)` with 10 tokens per second and a burst of 100, and starts
/// full (20 % and 10/s as in Finagle and linkerd2).
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
pub struct Budget(Kind);

#[derive(Clone)]
enum Kind {
    Unlimited,
    None,
    Limited(Arc<Limited>),
}

impl Budget {
    /// `ratio` extra attempts per deposit, from 0 to 10; 0 tokens per second, a burst of 100, full
    /// at the start.
    ///
    /// Fractions count to the millionth, rounded down.
    #[must_use]
    pub fn ratio(ratio: f64) -> Self {
        Self::limited(Settings {
            ratio,
            per_second: 0,
            burst: DEFAULT_BURST,
            initial: None,
        })
    }

    /// No bound on extra attempts but the layer's own.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self(Kind::Unlimited)
    }

    /// No extra attempt ever.
    #[must_use]
    pub const fn none() -> Self {
        Self(Kind::None)
    }

    /// Tokens that come back per second whatever the calls do, from 0 to 10,000.
    ///
    /// A floor for services with few calls. Of no effect on `unlimited` and `none`.
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
    /// The burst: a service may retry from its first call on.
    #[must_use]
    pub fn initial(self, initial: u32) -> Self {
        self.change(|settings| settings.initial = Some(initial))
    }

    /// Checks the settings. The layers' `build()` calls this.
    ///
    /// # Errors
    ///
    /// A ratio that is not a number from 0 to 10, more than 10,000 per second, a burst of 0, and
    /// an initial amount above the burst.
    pub fn validate(&self) -> Result<(), BuildError> {
        match &self.0 {
            Kind::Unlimited | Kind::None => Ok(()),
            Kind::Limited(limited) => limited.validate(),
        }
    }

    /// Gives back `ratio` tokens.
    #[inline]
    pub fn deposit(&self) {
        if let Kind::Limited(limited) = &self.0 {
            limited.deposit();
        }
    }

    /// Takes one token for an extra attempt, or says that there is none.
    #[must_use = "an unspent permit gives its token back when dropped"]
    pub fn withdraw(&self) -> Option<Permit> {
        match &self.0 {
            Kind::Unlimited => Some(Permit::free()),
            Kind::None => None,
            Kind::Limited(limited) => limited.withdraw().then(|| Permit::token(limited)),
        }
    }

    /// Whether no extra attempt is allowed ever.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        matches!(self.0, Kind::None)
    }

    fn limited(settings: Settings) -> Self {
        Self(Kind::Limited(Arc::new(Limited::new(settings))))
    }

    fn change(self, set: impl FnOnce(&mut Settings)) -> Self {
        let Kind::Limited(limited) = &self.0 else {
            return self;
        };
        let mut settings = limited.settings();
        set(&mut settings);
        Self::limited(settings)
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
            Kind::Unlimited => f.write_str("Budget::unlimited()"),
            Kind::None => f.write_str("Budget::none()"),
            Kind::Limited(limited) => f.debug_tuple("Budget").field(&limited.settings()).finish(),
        }
    }
}

#[cfg(all(test, tower_attempt_loom))]
mod models;
#[cfg(all(test, not(tower_attempt_loom)))]
mod tests;
