use std::sync::Arc;

use crate::{
    RateLimited, Rejection, RequestPolicy,
    key::KeySink,
    limits::{Applies, Limits, Outcome, Question, Rule},
};

/// The settings and the state of one layer, shared by all its services.
pub(crate) struct Calls<Req> {
    pub(crate) limits: Arc<Limits>,
    pub(super) policies: Vec<RequestPolicy<Req>>,
}

impl<Req> Calls<Req> {
    #[inline]
    pub(super) fn decide(&self, question: &mut Option<Question>, request: &Req) -> Outcome<()> {
        let limits = &self.limits;
        limits.decide(question, self.look(request), |_, _| ())
    }

    /// Returns whether and how a policy applies to a request.
    #[inline]
    pub(crate) fn look(&self, request: &Req) -> impl FnMut(usize, &Rule, &mut KeySink) -> Applies {
        |number, rule, sink| self.policies[number].look(request, rule, sink)
    }
}

impl Limits {
    /// Emits the event of an outcome, and turns a rejection into an error.
    pub(crate) fn admit(
        &self,
        outcome: Outcome<()>,
        question: &Question,
    ) -> Result<(), RateLimited> {
        match self.tell(outcome, question, |_, _| ()) {
            Outcome::Reject(reason) => {
                let rejection = Rejection::new(&self.rules, question, reason);
                Err(RateLimited::new(&rejection))
            }
            Outcome::Pass(()) | Outcome::Later(_) => Ok(()),
        }
    }
}
