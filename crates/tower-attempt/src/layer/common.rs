use std::sync::Arc;

use super::{Mode, OneOf};
use crate::{Budget, Budgets, BuildError};

/// The settings that retry and hedge layers have in common, as the user gave them.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// The layer's name for observers. Empty unless set.
    pub name: Arc<str>,
    /// Whether extra attempts are sent.
    pub mode: Option<Mode>,
    /// The budget of extra attempts, or the [`Budgets`] by key.
    pub pool: OneOf<Pool>,
}

/// The budget that a layer draws on, or its [`Budgets`] by key.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The layer's only budget, or the [template](Budgets::template) of its budgets by key.
    pub budget: Budget,
    /// The budgets of `budget_by` or `shared_budget_by`. The layer's [`Protocol`](crate::Protocol) picks one for each
    /// request, by the key that the setter's closure names.
    pub budgets: Option<Budgets>,
    /// Whether this layer deposits into the budget. If not, a layer above should.
    pub deposits: bool,
}

impl Pool {
    /// Returns a pool of one budget, without budgets by key.
    #[must_use]
    pub fn one(budget: Budget, deposits: bool) -> Self {
        Self {
            budget,
            budgets: None,
            deposits,
        }
    }
}

impl Common {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Returns an error if two setters gave a budget, or if the budget or the capacity of the budgets by key is out of
    /// its range.
    pub fn validate(&self) -> Result<(), BuildError> {
        self.pool.validate()?;
        let Some(pool) = self.pool.get() else {
            return Ok(());
        };
        let budgets = pool.budgets.as_ref();
        budgets.map_or_else(|| pool.budget.validate(), Budgets::validate)
    }

    /// Combines the settings of `given` with the settings of `self` that `given` leaves out. The name of `self` and its
    /// budgets by key stay. Budgets by key in `given` have no effect.
    ///
    /// # Errors
    ///
    /// Returns an error if `given` has a single budget and `self` has budgets by key.
    pub fn overridden_by(&self, given: &Self) -> Result<Self, BuildError> {
        let mut common = self.clone();
        common.mode = given.mode.or(self.mode);
        match (given.pool.setter(), self.pool.setter()) {
            _ if given.budgets().is_some() => {}
            (Some(setter), Some(by_key)) if self.budgets().is_some() => {
                return Err(BuildError::besides(setter, by_key));
            }
            (Some(_), _) => common.pool.clone_from(&given.pool),
            (None, _) => {}
        }
        Ok(common)
    }

    fn budgets(&self) -> Option<&Budgets> {
        self.pool.get()?.budgets.as_ref()
    }

    /// Returns the mode in effect.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or_default()
    }

    /// Returns the budget that a setter gave. If a setter gave budgets by key, returns their
    /// [template](Budgets::template). Returns `None` if no setter gave a budget.
    #[must_use]
    pub fn budget(&self) -> Option<&Budget> {
        self.pool.get().map(|pool| &pool.budget)
    }

    /// Returns the budget of requests without a key. If there are no budgets by key, returns a clone of `budget`, which
    /// is the layer's budget in effect.
    #[must_use]
    pub fn without_key(&self, budget: &Budget) -> Budget {
        match self.budgets() {
            Some(budgets) => budgets.get(&None::<&str>),
            None => budget.clone(),
        }
    }

    /// Whether this layer deposits into its budget.
    #[must_use]
    pub fn deposits(&self) -> bool {
        self.pool.get().is_none_or(|pool| pool.deposits)
    }
}
