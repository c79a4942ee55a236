use std::{cmp::Reverse, fmt, sync::Arc, time::Duration};

use crate::{
    Decision,
    limits::{PolicyCharge, Question, Rule},
};

/// The decisions on a request, with the names of their policies.
#[derive(Clone, Copy)]
pub struct Decided<'a> {
    rules: &'a [Rule],
    charges: &'a [PolicyCharge],
    decisions: &'a [Decision],
    keys: &'a [u8],
}

impl<'a> Decided<'a> {
    #[inline]
    pub(crate) fn new(rules: &'a [Rule], question: &'a Question) -> Self {
        Self {
            rules,
            charges: &question.charges,
            decisions: &question.decisions,
            keys: question.keys(),
        }
    }

    /// Returns an empty list, for a request on which no policy decided.
    pub(crate) fn none() -> Self {
        Self {
            rules: &[],
            charges: &[],
            decisions: &[],
            keys: &[],
        }
    }

    /// Returns the bytes of the request's keys. Each charge has the range of its key.
    pub(crate) fn keys(&self) -> &'a [u8] {
        self.keys
    }

    /// Returns the decision that matters most to the caller: the rejection with the longest wait, or else the decision
    /// with the fewest remaining tokens.
    #[inline]
    pub(crate) fn tightest(&self) -> Option<(&'a PolicyCharge, &'a Decision)> {
        self.tightest_of(|_| true)
    }

    /// Returns the tightest decision among those for which `some` returns `true`.
    #[inline]
    pub(crate) fn tightest_of(
        &self,
        some: impl Fn(&PolicyCharge) -> bool,
    ) -> Option<(&'a PolicyCharge, &'a Decision)> {
        let charges = self.charges().filter(|(asked, _)| some(asked));
        charges.min_by_key(|(_, one)| {
            let wait = one.retry_after.unwrap_or(Duration::MAX);
            (one.allowed, Reverse(wait), one.remaining)
        })
    }

    /// Returns the name and the decision of each policy that decided, in the layer's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a Decision)> + use<'a> {
        self.named().map(|(rule, decision)| (&*rule.name, decision))
    }

    /// Returns each decision with its policy.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'a Rule, &'a Decision)> + Clone + use<'a> {
        let rules = self.rules;
        self.charges()
            .map(|(asked, decision)| (&rules[asked.rule], decision))
    }

    /// Returns each decision with its charge.
    #[inline]
    pub(crate) fn charges(
        &self,
    ) -> impl Iterator<Item = (&'a PolicyCharge, &'a Decision)> + Clone + use<'a> {
        self.charges.iter().zip(self.decisions)
    }

    /// Returns whether the decisions have meaningful numbers.
    pub(crate) fn has_counted(&self) -> bool {
        let mut decisions = self.decisions.iter();
        decisions.all(|decision| decision.source.has_counted())
    }

    pub(crate) fn owned(&self) -> Vec<(Arc<str>, Decision)> {
        self.named()
            .map(|(rule, decision)| (Arc::clone(&rule.name), *decision))
            .collect()
    }
}

impl fmt::Debug for Decided<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
