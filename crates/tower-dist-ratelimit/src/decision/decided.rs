use std::{fmt, slice, sync::Arc};

use crate::{
    Decision,
    limits::{Asked, Limits, Question, Rule},
};

/// The decisions on a request, with the names of their policies.
#[derive(Clone, Copy)]
pub struct Decided<'a> {
    rules: &'a [Rule],
    asked: &'a [Asked],
    decisions: &'a [Decision],
}

impl<'a> Decided<'a> {
    pub(crate) fn new(limits: &'a Limits, question: &'a Question) -> Self {
        Self {
            rules: &limits.rules,
            asked: &question.asked,
            decisions: &question.decisions,
        }
    }

    /// The decision of the only policy that was asked.
    pub(crate) fn one(limits: &'a Limits, asked: &'a Asked, decision: &'a Decision) -> Self {
        Self {
            rules: &limits.rules,
            asked: slice::from_ref(asked),
            decisions: slice::from_ref(decision),
        }
    }

    /// The name and the decision of each policy that was asked, in the order in which the layer has them.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a Decision)> + use<'a> {
        self.named().map(|(rule, decision)| (&*rule.name, decision))
    }

    /// Each with its policy.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'a Rule, &'a Decision)> + Clone + use<'a> {
        let rules = self.rules;
        self.asked()
            .map(|(asked, decision)| (&rules[asked.rule], decision))
    }

    /// Each with what was asked.
    pub(crate) fn asked(
        &self,
    ) -> impl Iterator<Item = (&'a Asked, &'a Decision)> + Clone + use<'a> {
        self.asked.iter().zip(self.decisions)
    }

    /// Whether the decisions have numbers to tell of.
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
