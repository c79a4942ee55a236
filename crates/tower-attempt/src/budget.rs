mod bucket;
#[cfg(feature = "tower")]
mod tower;

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use self::bucket::Bucket;
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

struct Limited {
    settings: Settings,
    /// Time in the bucket counts from here.
    epoch: Instant,
    bucket: Bucket,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    ratio: f64,
    per_second: u32,
    burst: u32,
    initial: Option<u32>,
}

/// Linkerd2's and Finagle's ratio: one extra attempt for five calls that went well.
const DEFAULT_RATIO: f64 = 0.2;
/// Finagle's and linkerd2's floor, so that services with few calls can retry at all.
const DEFAULT_PER_SECOND: u32 = 10;
/// Ten seconds of the floor, as in Finagle, whose tokens live for ten seconds.
const DEFAULT_BURST: u32 = 100;

/// More extra attempts than calls make no sense as a protection; ten leaves room for fan-out.
const MAX_RATIO: f64 = 10.0;
/// Keeps the bucket's word from running over for 58 years; see `bucket`.
const MAX_PER_SECOND: u32 = 10_000;

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
        let Kind::Limited(limited) = &self.0 else {
            return Ok(());
        };
        let Settings {
            ratio,
            per_second,
            burst,
            initial,
        } = limited.settings;
        if !(0.0..=MAX_RATIO).contains(&ratio) {
            let bound = "from 0 to 10 extra attempts per deposit";
            return Err(BuildError::new("budget.ratio", ratio, bound));
        }
        if per_second > MAX_PER_SECOND {
            let bound = "at most 10000; for no bound use Budget::unlimited()";
            return Err(BuildError::new("budget.per_second", per_second, bound));
        }
        if burst == 0 {
            let bound = "at least 1; for no extra attempt ever use Budget::none()";
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

    /// Gives back `ratio` tokens.
    #[inline]
    pub fn deposit(&self) {
        if let Kind::Limited(limited) = &self.0 {
            limited.bucket.deposit(|| limited.now());
        }
    }

    /// Takes one token for an extra attempt, or says that there is none.
    #[must_use = "an unspent permit gives its token back when dropped"]
    pub fn withdraw(&self) -> Option<Permit> {
        match &self.0 {
            Kind::Unlimited => Some(Permit(None)),
            Kind::None => None,
            Kind::Limited(limited) => limited
                .bucket
                .withdraw(|| limited.now())
                .then(|| Permit(Some(Arc::clone(limited)))),
        }
    }

    /// Whether no extra attempt is allowed ever.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        matches!(self.0, Kind::None)
    }

    fn limited(settings: Settings) -> Self {
        Self(Kind::Limited(Arc::new(Limited {
            epoch: Instant::now(),
            bucket: settings.bucket(),
            settings,
        })))
    }

    fn change(self, set: impl FnOnce(&mut Settings)) -> Self {
        let Kind::Limited(limited) = &self.0 else {
            return self;
        };
        let mut settings = limited.settings;
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
            Kind::Limited(limited) => f.debug_tuple("Budget").field(&limited.settings).finish(),
        }
    }
}

impl Settings {
    fn bucket(&self) -> Bucket {
        let initial = self.initial.unwrap_or(self.burst);
        Bucket::new(self.ratio, self.burst, initial)
    }
}

impl Limited {
    /// The bucket's clock, which stands still where no tokens come back with time.
    fn now(&self) -> u64 {
        match self.settings.per_second {
            0 => 0,
            per_second => bucket::units(self.epoch.elapsed(), per_second),
        }
    }
}

/// A token taken from a [`Budget`]: goes back when dropped, unless [spent](Self::spend).
///
/// It is owned and may be kept across an `await`; a call that is cancelled while it waits for its
/// extra attempt costs nothing.
#[must_use = "an unspent permit gives its token back when dropped"]
pub struct Permit(Option<Arc<Limited>>);

impl Permit {
    /// Uses the token up: the extra attempt is sent.
    pub fn spend(mut self) {
        self.0 = None;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(limited) = &self.0 {
            limited.bucket.refund();
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit")
    }
}

#[cfg(test)]
mod tests;
