use std::{fmt, sync::Arc};

use crate::{
    Decision,
    limits::{Limits, Question},
};

/// The decisions on a request, with the names of their policies.
#[derive(Clone, Copy)]
pub struct Decided<'a> {
    limits: &'a Limits,
    question: &'a Question,
}

impl<'a> Decided<'a> {
    pub(crate) fn new(limits: &'a Limits, question: &'a Question) -> Self {
        Self { limits, question }
    }

    /// The name and the decision of each policy that was asked, in the order in which the layer has them.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a Decision)> + use<'a> {
        let named = self.question.named(self.limits);
        named.map(|(rule, decision)| (&*rule.name, decision))
    }

    pub(crate) fn owned(&self) -> Vec<(Arc<str>, Decision)> {
        let named = self.question.named(self.limits);
        let owned = named.map(|(rule, decision)| (Arc::clone(&rule.name), *decision));
        owned.collect()
    }
}

impl fmt::Debug for Decided<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
