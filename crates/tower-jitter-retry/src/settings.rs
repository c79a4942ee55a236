use std::sync::Arc;
use std::time::Duration;

use tower_attempt::layer::Common;
use tower_attempt::{Budget, BuildError, Deadline, Mode, RetryOverride};

use crate::backoff::{Backoff, Schedule, Seeds};
use crate::counts::Counters;

/// Default of the maximum `Retry-After` to honour: callers rarely wait longer than a minute.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Default number of attempts, as in the standard mode of the AWS SDKs and in the SRE book's chapter on overload.
const MAX_ATTEMPTS: u32 = 3;

/// The settings in effect, computed from [`Config`]. A handle replaces them, but a call keeps the version with which it
/// began.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) mode: Mode,
    pub(crate) budget: Budget,
    /// Whether this layer deposits its successful calls into the budget. Otherwise a layer above does.
    pub(crate) deposits: bool,
    /// Whether the settings allow a second attempt.
    pub(crate) can_retry: bool,
    /// Unless the request's [`RetryOverride`] has a deadline, no retry is scheduled for this time or later. The time is
    /// measured from the call's start.
    last_start: Option<Duration>,
    /// Whether the layer can end attempts in flight.
    has_time_limits: bool,
    /// Gives each schedule of delays its own seed. Shared by all versions of the settings, until a handle sets a
    /// backoff.
    seeds: Arc<Seeds>,
    /// Shared by all versions of the settings.
    pub(crate) counters: Arc<Counters>,
}

/// The settings as the user gave them: to a builder, to a handle, or in a request's override. A field of type `Option`
/// is `None` if its setting was not given.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub(crate) common: Common,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) max_retry_after: Option<Duration>,
    pub(crate) retry_until: Option<Duration>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) backoff: Option<Backoff>,
}

impl Config {
    pub(crate) fn validate(&self) -> Result<(), BuildError> {
        if self.max_attempts == Some(0) {
            let bound = "at least 1, the first attempt included";
            return Err(BuildError::new("max_attempts", 0, bound));
        }
        for (name, limit) in self.time_limits() {
            if let Some(Duration::ZERO) = limit {
                return Err(BuildError::new(name, Duration::ZERO, "longer than nothing"));
            }
        }
        self.backoff.unwrap_or_default().validate()?;
        self.common.validate()
    }

    pub(crate) fn max_attempts(&self) -> u32 {
        self.max_attempts.unwrap_or(MAX_ATTEMPTS)
    }

    pub(crate) fn max_retry_after(&self) -> Duration {
        self.max_retry_after.unwrap_or(MAX_RETRY_AFTER)
    }

    fn time_limits(&self) -> [(&'static str, Option<Duration>); 2] {
        [
            ("attempt_timeout", self.attempt_timeout),
            ("deadline", self.deadline),
        ]
    }

    /// Combines the settings of `given` with the settings of `self` that `given` leaves out. Some settings in `common`
    /// stay: see [`Common::overridden_by`].
    fn overridden_by(&self, given: &Self) -> Result<Self, BuildError> {
        Ok(Self {
            common: self.common.overridden_by(&given.common)?,
            max_attempts: given.max_attempts.or(self.max_attempts),
            max_retry_after: given.max_retry_after.or(self.max_retry_after),
            retry_until: given.retry_until.or(self.retry_until),
            attempt_timeout: given.attempt_timeout.or(self.attempt_timeout),
            deadline: given.deadline.or(self.deadline),
            backoff: given.backoff.or(self.backoff),
        })
    }
}

impl Settings {
    /// Returns the settings of a new layer. `has_time_limits` is true if the layer can end attempts in flight.
    pub(crate) fn new(config: Config, has_time_limits: bool) -> Self {
        let settings = Self {
            mode: Mode::On,
            budget: Budget::default(),
            deposits: true,
            can_retry: true,
            last_start: None,
            has_time_limits,
            seeds: Arc::new(config.backoff.unwrap_or_default().seeds()),
            counters: Arc::default(),
            config,
        };
        settings.resolved()
    }

    /// Returns these settings with the changes in `given`.
    pub(crate) fn changed(&self, given: &Config) -> Result<Self, BuildError> {
        given.validate()?;
        for (name, limit) in given.time_limits() {
            if let (Some(limit), false) = (limit, self.has_time_limits) {
                let bound =
                    "unset: the layer was built without attempt_timeout, deadline and on_timeout";
                return Err(BuildError::new(name, limit, bound));
            }
        }
        let mut settings = self.clone();
        settings.config = self.config.overridden_by(given)?;
        if let Some(backoff) = given.backoff {
            settings.seeds = Arc::new(backoff.seeds());
        }
        Ok(settings.resolved())
    }

    /// Computes the fields that depend on `config`, except `seeds`, which only a new backoff replaces.
    fn resolved(mut self) -> Self {
        let config = &self.config;
        if let Some(budget) = config.common.budget() {
            self.budget = budget.clone();
        }
        self.mode = config.common.mode();
        self.deposits = config.common.deposits();
        self.can_retry = config.max_attempts() > 1 && self.mode == Mode::On;
        let limits = [config.retry_until, config.deadline];
        self.last_start = limits.into_iter().flatten().min();
        self
    }

    /// Returns the limit of a call that begins now: no retry is scheduled for that instant or later. Reads the clock
    /// only if a limit is set.
    #[inline]
    pub(crate) fn last_start(&self) -> Deadline {
        self.last_start.map_or(Deadline::NEVER, Deadline::after)
    }

    /// Returns these settings with the changes of a request's override, except the deadline. The service applies the
    /// deadline itself.
    pub(crate) fn overridden(&self, own: &RetryOverride) -> Arc<Self> {
        let mut settings = self.clone();
        let config = &mut settings.config;
        config.max_attempts = own.max_attempts.or(config.max_attempts);
        config.attempt_timeout = own.attempt_timeout.or(config.attempt_timeout);
        Arc::new(settings.resolved())
    }

    /// Returns a new schedule of delays, with the next seed.
    pub(crate) fn schedule(&self) -> Schedule {
        Schedule::new(self.config.backoff.unwrap_or_default(), self.seeds.next())
    }
}
