use std::{sync::Arc, time::Duration};

use crate::{
    BuildError, Consistency, Policy,
    backend::{Backend, PolicyId},
    deny::Denying,
    eventual::{Ledger, PostPaid},
    lease::Leasing,
};

/// What this process answers without a round trip to a store.
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

/// A store with what stands in front of it.
pub(crate) struct Front {
    pub(crate) backend: Arc<dyn Backend>,
    /// It again, if it leases.
    pub(crate) leasing: Option<Arc<Leasing>>,
}

impl Nearby {
    /// The only part of the front that can fail, made before the store registers anything.
    pub(crate) fn ledger(self, policies: &[Policy]) -> Result<Option<Ledger>, BuildError> {
        match self.consistency {
            Consistency::Eventual(_) => Ledger::new(policies).map(Some),
            Consistency::Exact | Consistency::Leased(_) => Ok(None),
        }
    }

    /// In front of a store that knows these policies by these names. Without anything to do it is the store itself.
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
