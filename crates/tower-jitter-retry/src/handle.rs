use std::time::Duration;

use tower_attempt::layer::{Common, Live};
use tower_attempt::{Budget, BuildError, Mode};

use crate::counts::RetryCounts;
use crate::settings::{Knobs, Settings};
use crate::{Backoff, RetryLayer};

/// Watches a retry layer, and changes it while it is in use.
///
/// Every service of the layer follows a change from its next call on. Calls in flight end with the settings
/// that they began with.
///
/// ```
/// use tower_jitter_retry::{Mode, RetryLayer};
///
/// let layer = RetryLayer::http();
/// let handle = layer.handle();
/// handle.set_mode(Mode::Off);
/// // On again, with one attempt less.
/// handle.set_max_attempts(2)?;
/// handle.set_mode(Mode::On);
/// assert_eq!(handle.mode(), Mode::On);
/// assert_eq!(handle.counts().retries, 0);
/// assert_eq!(handle.budget().available(), 100);
/// # Ok::<_, tower_jitter_retry::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RetryHandle(Live<Settings>);

impl<P, O, T> RetryLayer<P, O, T> {
    /// Returns a handle that watches the layer, and changes it while it is in use.
    #[must_use]
    pub fn handle(&self) -> RetryHandle {
        RetryHandle(self.0.settings.clone())
    }
}

impl RetryHandle {
    /// Returns the counts since the layer was made.
    #[must_use]
    pub fn counts(&self) -> RetryCounts {
        self.0.load().counters.read()
    }

    /// Returns a clone of the layer's budget, which shares its tokens. With
    /// [`budget_by`](crate::RetryLayerBuilder::budget_by) it is the budget of requests without a key.
    #[must_use]
    pub fn budget(&self) -> Budget {
        let settings = self.0.load();
        settings.knobs.common.without_key(&settings.budget)
    }

    /// Returns the current mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.0.load().mode
    }

    /// Sets the mode: switches retries on or off, or only counts them.
    pub fn set_mode(&self, mode: Mode) {
        // A mode contradicts no other setting.
        let _ = self.change(|given| given.common.mode = Some(mode));
    }

    /// Sets the budget. Who deposits into it stays: this layer, or with
    /// [`shared_budget`](crate::RetryLayerBuilder::shared_budget) a layer above.
    ///
    /// # Errors
    ///
    /// Returns an error if the budget is out of its range, or if the layer has budgets by key.
    pub fn set_budget(&self, budget: Budget) -> Result<(), BuildError> {
        let deposits = self.0.load().deposits;
        self.change(|given| given.common = Common::of_budget(budget, deposits))
    }

    /// Sets the maximum number of attempts per call, the first one included.
    ///
    /// # Errors
    ///
    /// Returns an error if it is 0.
    pub fn set_max_attempts(&self, attempts: u32) -> Result<(), BuildError> {
        self.change(|given| given.max_attempts = Some(attempts))
    }

    /// Sets the backoff.
    ///
    /// # Errors
    ///
    /// Returns an error if the backoff is out of its range.
    pub fn set_backoff(&self, backoff: Backoff) -> Result<(), BuildError> {
        self.change(|given| given.backoff = Some(backoff))
    }

    /// Sets the maximum `Retry-After` to honour.
    pub fn set_max_retry_after(&self, longest: Duration) {
        // It contradicts no other setting.
        let _ = self.change(|given| given.max_retry_after = Some(longest));
    }

    /// Sets the timeout of each attempt.
    ///
    /// # Errors
    ///
    /// Returns an error if it is zero, or if the layer was built without time limits.
    pub fn set_attempt_timeout(&self, timeout: Duration) -> Result<(), BuildError> {
        self.change(|given| given.attempt_timeout = Some(timeout))
    }

    /// Sets the maximum duration of a call.
    ///
    /// # Errors
    ///
    /// Returns an error if it is zero, or if the layer was built without time limits.
    pub fn set_deadline(&self, limit: Duration) -> Result<(), BuildError> {
        self.change(|given| given.deadline = Some(limit))
    }

    /// Sets all settings that were given to the builder of another layer. Settings that it was not given stay.
    ///
    /// The budget is then shared with `layer`. Name, protocol, rules, observer, budgets by key, and the kind of
    /// time limits stay, whatever `layer` has.
    ///
    /// # Errors
    ///
    /// Returns an error and changes nothing if a setting of `layer` contradicts one that stays: one budget and
    /// budgets by key, or a time limit in a layer that was built without one.
    pub fn retune<P, O, T>(&self, layer: &RetryLayer<P, O, T>) -> Result<(), BuildError> {
        let given = &layer.0.settings.load().knobs;
        self.0.change(|settings| settings.changed(given))
    }

    fn change(&self, set: impl FnOnce(&mut Knobs)) -> Result<(), BuildError> {
        let mut given = Knobs::default();
        set(&mut given);
        self.0.change(|settings| settings.changed(&given))
    }
}
