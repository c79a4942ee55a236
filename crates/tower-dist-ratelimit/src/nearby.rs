use std::{sync::Arc, time::Duration};

use crate::{
    BuildError, Policy, Sharing,
    backend::{Backend, PolicyId},
    deny::Denying,
    lease::Leasing,
    post_paid::PostPaid,
};

/// What this process answers without a round trip to a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nearby {
    pub(crate) sharing: Sharing,
    pub(crate) deny_cache: bool,
}

impl Default for Nearby {
    fn default() -> Self {
        Self {
            sharing: Sharing::default(),
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
    /// In front of a store that knows these policies by these names. Without anything to do it is the store itself.
    pub(crate) fn front(
        self,
        store: Arc<dyn Backend>,
        policies: &[Policy],
        ids: &[PolicyId],
        deadline: Duration,
    ) -> Result<Front, BuildError> {
        let mut backend = store;
        if self.deny_cache && backend.is_remote() {
            backend = Arc::new(Denying::new(backend, policies, ids));
        }
        Ok(match self.sharing {
            Sharing::Exact => Front {
                backend,
                leasing: None,
            },
            Sharing::Leases(time) => {
                let leasing = Arc::new(Leasing::new(backend, policies, ids, time, deadline));
                Front {
                    backend: Arc::clone(&leasing) as Arc<dyn Backend>,
                    leasing: Some(leasing),
                }
            }
            Sharing::Asynchronous(period) => Front {
                backend: Arc::new(PostPaid::new(backend, policies, ids, period, deadline)?),
                leasing: None,
            },
        })
    }
}
