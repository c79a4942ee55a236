use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::{counted::Counted, set::Set};
use crate::{
    Algorithm, BuildError, Policy, Quota,
    backend::{BackendError, PolicyId},
};

/// What was registered.
///
/// A set that is registered again is the one that was there, so that a service which builds its limits anew, time and
/// again, takes no more memory than one that does not.
#[derive(Default)]
pub(super) struct Registry(RwLock<Registered>);

#[derive(Default)]
pub(super) struct Registered {
    policies: Vec<Entry>,
    /// Where each set begins, and how many it has.
    sets: Vec<(usize, usize)>,
}

/// One policy.
pub(super) struct Entry {
    pub(super) kept: Kept,
    pub(super) dynamic: bool,
    terms: Terms,
}

/// What makes a policy another one.
#[derive(PartialEq)]
struct Terms {
    name: String,
    quota: Quota,
    algorithm: Algorithm,
    dynamic: bool,
}

/// Where a policy's states are.
#[derive(Clone)]
pub(super) enum Kept {
    /// Each window is a counter.
    Counted(Arc<Counted>),
    /// One of a set, at this place in its items.
    InSet(Arc<Set>, usize),
}

impl Registry {
    /// Names the policies of a set; as before, if all are what they were.
    ///
    /// # Errors
    ///
    /// A policy that cannot be kept.
    pub(super) fn register(
        &self,
        prefix: &str,
        policies: &[Policy],
    ) -> Result<Vec<PolicyId>, BuildError> {
        let kept = kept(prefix, policies)?;
        let mut registered = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let terms: Vec<Terms> = policies.iter().map(Terms::of).collect();
        let first = registered.find(&terms).unwrap_or_else(|| {
            let first = registered.policies.len();
            registered.sets.push((first, terms.len()));
            let entries = kept.into_iter().zip(terms);
            registered
                .policies
                .extend(entries.map(|(kept, terms)| Entry {
                    kept,
                    dynamic: terms.dynamic,
                    terms,
                }));
            first
        });
        let numbers = first..first + policies.len();
        Ok(numbers
            .map(|number| PolicyId::new(u32::try_from(number).unwrap_or(u32::MAX)))
            .collect())
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Registered> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    pub(super) fn policy(&self, id: PolicyId) -> Result<&Entry, BackendError> {
        usize::try_from(id.number())
            .ok()
            .and_then(|number| self.policies.get(number))
            .ok_or_else(|| BackendError::new("this policy was not registered here"))
    }

    /// Where a set of the same policies is.
    fn find(&self, terms: &[Terms]) -> Option<usize> {
        let is_same = |&&(first, len): &&(usize, usize)| {
            let known = self.policies[first..first + len].iter();
            known.map(|entry| &entry.terms).eq(terms)
        };
        self.sets.iter().find(is_same).map(|&(first, _)| first)
    }
}

impl Terms {
    fn of(policy: &Policy) -> Self {
        Self {
            name: policy.name().to_owned(),
            quota: policy.quota(),
            algorithm: policy.algorithm(),
            dynamic: policy.has_dynamic_quotas(),
        }
    }
}

/// The policies of a set, each with its place.
fn kept(prefix: &str, policies: &[Policy]) -> Result<Vec<Kept>, BuildError> {
    if let [policy] = policies {
        let counted = Counted::new(prefix, policy);
        let counted = counted.map_err(|error| error.in_policy(policy.name()))?;
        if let Some(counted) = counted {
            return Ok(vec![Kept::Counted(Arc::new(counted))]);
        }
    }
    let set = Arc::new(Set::new(prefix, policies)?);
    let places = 0..policies.len();
    Ok(places
        .map(|place| Kept::InSet(Arc::clone(&set), place))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_is_registered_again_is_the_same_and_takes_no_memory() {
        let registry = Registry::default();
        let set = |limit| {
            let quota = Quota::per_minute(limit);
            [Policy::new("a", quota), Policy::new("b", quota).first_hit()]
        };
        let ids = registry.register("rl", &set(10)).unwrap();
        let other = registry.register("rl", &set(11)).unwrap();
        for _ in 0..1000 {
            assert_eq!(registry.register("rl", &set(10)).unwrap(), ids);
            assert_eq!(registry.register("rl", &set(11)).unwrap(), other);
        }
        assert_eq!(registry.read().policies.len(), 4);
    }

    #[test]
    fn what_differs_in_anything_is_another_set() {
        let registry = Registry::default();
        let policy = || Policy::new("a", Quota::per_minute(10));
        let sets = [
            vec![policy()],
            vec![Policy::new("b", Quota::per_minute(10))],
            vec![Policy::new("a", Quota::per_minute(11))],
            vec![Policy::new("a", Quota::per_minute(10).burst(9))],
            vec![Policy::new("a", Quota::per_hour(600).burst(10))],
            vec![policy().dynamic_quotas()],
            vec![policy().fixed_window()],
            vec![policy().sub_windows(4)],
            vec![policy().sub_windows(5)],
            vec![policy(), Policy::new("b", Quota::per_minute(10))],
            vec![Policy::new("b", Quota::per_minute(10)), policy()],
        ];
        let mut seen = Vec::new();
        for set in &sets {
            let ids = registry.register("rl", set).unwrap();
            assert!(!seen.contains(&ids), "{set:?}");
            seen.push(ids);
        }
        // And each is still what it was.
        for (set, ids) in sets.iter().zip(seen) {
            assert_eq!(registry.register("rl", set).unwrap(), ids);
        }
    }
}
