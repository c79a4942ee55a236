use std::time::Duration;

use super::Classify;
use super::forward::forward_classify;
use crate::{Budget, Budgets};

/// A classification together with budgets, of which a closure picks one for each request.
#[derive(Clone, Debug)]
pub struct BudgetBy<C, F> {
    classify: C,
    budgets: Budgets,
    pick: F,
}

/// What [`BudgetBy`] remembers of a request.
#[derive(Debug)]
pub struct Picked<X> {
    context: X,
    budget: Budget,
}

impl<X> Picked<X> {
    fn context(&self) -> &X {
        &self.context
    }

    fn context_mut(&mut self) -> &mut X {
        &mut self.context
    }
}

impl<C, F> BudgetBy<C, F> {
    /// Judges like `classify`, and draws on the budget that `pick` takes out of `budgets`.
    pub const fn new(classify: C, budgets: Budgets, pick: F) -> Self {
        Self {
            classify,
            budgets,
            pick,
        }
    }
}

impl<C, F, Req, Res, E> Classify<Req, Res, E> for BudgetBy<C, F>
where
    C: Classify<Req, Res, E>,
    F: Fn(&Budgets, &Req) -> Budget,
{
    type Context = Picked<C::Context>;

    fn prepare(&self, request: &mut Req) {
        self.classify.prepare(request);
    }

    fn context(&self, request: &Req) -> Self::Context {
        Picked {
            context: self.classify.context(request),
            budget: (self.pick)(&self.budgets, request),
        }
    }

    fn budget<'a>(&'a self, context: &'a Self::Context) -> Option<&'a Budget> {
        Some(&context.budget)
    }

    fn backoff(&self, retry: u32, outcome: &Result<Res, E>) -> Option<Duration> {
        self.classify.backoff(retry, outcome)
    }

    forward_classify!(Picked::context, Picked::context_mut);
}
