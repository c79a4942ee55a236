use std::{cmp::Reverse, fmt, sync::Arc, time::Duration};

use crate::{
    Decision,
    limits::{Check, PolicyCharge, Rule},
};

/// The decisions on a request, with the names of their policies.
#[derive(Clone, Copy)]
pub struct Decided<'a> {
    pub(crate) rules: &'a [Rule],
    pub(crate) check: &'a Check,
}

impl<'a> Decided<'a> {
    #[inline]
    pub(crate) fn new(rules: &'a [Rule], check: &'a Check) -> Self {
        Self { rules, check }
    }

    /// Returns the rejection with the longest wait, or else the decision with the fewest remaining tokens. Only the
    /// policies for which `some` returns `true` count. A rejection without a wait counts as the longest wait.
    pub(crate) fn tightest(
        &self,
        some: impl Fn(&PolicyCharge) -> bool,
    ) -> Option<(&'a PolicyCharge, &'a Decision)> {
        let charges = self.charges().filter(|(asked, _)| some(asked));
        charges.min_by_key(|(_, one)| {
            let wait = one.retry_after.unwrap_or(Duration::MAX);
            (one.allowed, Reverse(wait), one.remaining)
        })
    }

    /// Returns the name and the decision of each policy that decided, in the order in which the policies were added to
    /// the layer or limiter.
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
        let Check {
            charges, decisions, ..
        } = self.check;
        charges.iter().zip(decisions.iter())
    }

    /// Returns the rejection and the index of its policy, if only one policy decided and it rejected the request.
    pub(crate) fn only_rejection(&self) -> Option<(usize, &'a Decision)> {
        match (&self.check.charges[..], &self.check.decisions[..]) {
            ([asked], [decision]) if !decision.allowed => Some((asked.rule, decision)),
            _ => None,
        }
    }

    /// Returns whether the numbers of all decisions are meaningful: no failure mode decided without a counter.
    pub(crate) fn has_counted(&self) -> bool {
        let mut decisions = self.check.decisions.iter();
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
