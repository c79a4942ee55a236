use std::{sync::Arc, time::Duration};

use crate::{
    BuildError, Consistency, Policy,
    backend::{Backend, PolicyId},
    deny::Denying,
    eventual::{Ledger, PostPaid},
    lease::Leasing,
};

/// The settings of decisions without a round trip to a backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nearby {
    pub(crate) consistency: Consistency,
    pub(crate) deny_cache: bool,
}

impl Default for Nearby {
    fn default() -> Self {
        Self {
            consistency: Consistency::default(),
            deny_cache: true,
        }
    }
}

/// A backend with its deny cache, its leases or its eventual counting.
pub(crate) struct Front {
    pub(crate) backend: Arc<dyn Backend>,
    /// The same backend, if it leases.
    pub(crate) leasing: Option<Arc<Leasing>>,
}

impl Nearby {
    /// Makes the only part that can fail, before the backend registers a policy.
    pub(crate) fn ledger(self, policies: &[Policy]) -> Result<Option<Ledger>, BuildError> {
        match self.consistency {
            Consistency::Eventual(_) => Ledger::new(policies).map(Some),
            Consistency::Exact | Consistency::Leased(_) => Ok(None),
        }
    }

    /// Wraps a backend that knows these policies by these ids. If no setting applies, returns the backend itself.
    pub(crate) fn front(
        self,
        store: Arc<dyn Backend>,
        policies: &[Policy],
        ids: &[PolicyId],
        ledger: Option<Ledger>,
        deadline: Duration,
    ) -> Front {
        let mut backend = store;
        if self.deny_cache && backend.is_remote() {
            backend = Arc::new(Denying::new(backend, policies, ids));
        }
        match (self.consistency, ledger) {
            (Consistency::Leased(time), _) => {
                let leasing = Arc::new(Leasing::new(backend, policies, ids, time, deadline));
                Front {
                    backend: Arc::clone(&leasing) as Arc<dyn Backend>,
                    leasing: Some(leasing),
                }
            }
            (Consistency::Eventual(period), Some(ledger)) => Front {
                backend: Arc::new(PostPaid::new(backend, ledger.of(ids), period, deadline)),
                leasing: None,
            },
            (Consistency::Exact | Consistency::Eventual(_), _) => Front {
                backend,
                leasing: None,
            },
        }
    }
}
