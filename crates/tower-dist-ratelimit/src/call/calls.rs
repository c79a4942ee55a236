use std::sync::Arc;

use crate::{
    RateLimited, Rejection, RequestPolicy,
    key::KeySink,
    limits::{Applies, Limits, Outcome, PolicyCharge, Question, Rule},
};

/// The settings and the state of one layer, shared by all its services.
pub(crate) struct Calls<Req> {
    pub(crate) limits: Arc<Limits>,
    pub(super) policies: Vec<RequestPolicy<Req>>,
}

impl<Req> Calls<Req> {
    /// Returns whether a policy applies to a request, and fills in its charge.
    #[inline]
    pub(crate) fn look(
        &self,
        request: &Req,
    ) -> impl FnMut(&Rule, &mut KeySink, &mut PolicyCharge) -> Applies {
        |rule, sink, asked| self.policies[asked.rule].look(request, rule, sink, asked)
    }
}

impl Limits {
    /// Emits the event of an outcome, and turns a rejection into an error.
    pub(crate) fn admit(&self, outcome: Outcome, question: &Question) -> Result<(), RateLimited> {
        match self.tell(outcome, question) {
            Outcome::Reject(reason) => {
                let rejection = Rejection::new(&self.rules, question, reason);
                Err(RateLimited::new(&rejection))
            }
            Outcome::Pass { .. } | Outcome::Later => Ok(()),
        }
    }
}
