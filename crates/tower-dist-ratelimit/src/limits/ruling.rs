use std::sync::Arc;

use http::{HeaderMap, HeaderValue};

use super::{Asked, Limits};
use crate::{
    Decisions, Reason,
    backend::{Bounded, Verdict},
};

/// What to do with a request, if that is known already.
pub(crate) enum Outcome {
    Now(Ruling),
    Later {
        answer: Bounded<Verdict>,
        asked: Asked,
    },
}

/// What to do with a request.
pub(crate) enum Ruling {
    Pass(Option<Stamp>),
    Refuse(Denied),
}

/// A request that must not pass, and why.
pub(crate) struct Denied {
    pub(crate) reason: Reason,
    pub(crate) asked: Asked,
    pub(crate) decisions: Decisions,
}

/// The fields for a response that is yet to come.
pub(crate) struct Stamp {
    pub(super) limits: Arc<Limits>,
    pub(super) state: HeaderValue,
}

impl Denied {
    pub(super) fn because(reason: Reason) -> Self {
        Self {
            reason,
            asked: Asked::new(),
            decisions: Decisions::refused(0),
        }
    }
}

impl Stamp {
    pub(crate) fn put_on(self, fields: &mut HeaderMap) {
        self.limits.put_fields(fields, self.state);
    }
}
