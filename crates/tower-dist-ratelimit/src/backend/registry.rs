//! The sets of policies that a backend decides on.

use std::sync::{Mutex, PoisonError};

use crate::backend::{BackendError, Charge, PolicyId};
use crate::{BuildError, Policy, build_error::ensure, policy::BackendPolicy};

/// Number of low bits of a policy's id that hold the policy's index in its set. The other bits hold the set's number.
const PLACE_BITS: u32 = 5;

const PLACES: usize = 1 << PLACE_BITS;

const MAX_SETS: usize = 1 << (u32::BITS - PLACE_BITS);

/// The policy sets of one backend. A set is the policies of one [`register`](crate::backend::Backend::register) call.
/// For each set, the backend provides a state `S`, such as tables or scripts.
///
/// Equal sets are registered once. So limits that are rebuilt unchanged over the same backend keep their counts there,
/// and the registry does not grow. Sets are equal if their policies have the same names, quotas, algorithms,
/// [`dynamic_quotas`](Policy::dynamic_quotas) and [`colocate`](Policy::colocate) settings, in the same order. A
/// registered set stays until the registry is dropped.
///
/// [`find`](Self::find) takes no lock. So a decision does not wait while another set is registered.
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, backend::{Charge, Registry}};
///
/// let registry = Registry::default();
/// let set = || [Policy::new("reads", Quota::per_second(9)), Policy::new("writes", Quota::per_second(1))];
/// let ids = registry.register(&set(), || Ok("prepared")).unwrap();
/// assert_eq!(registry.register(&set(), || unreachable!()).unwrap(), ids);
///
/// let (state, place) = registry.find(&Charge::new(ids[1], b"client", 1)).unwrap();
/// assert_eq!((*state, place), ("prepared", 1));
/// ```
#[derive(Debug)]
pub struct Registry<S> {
    sets: boxcar::Vec<Registered<S>>,
    /// Locked during a registration.
    registering: Mutex<()>,
}

#[derive(Debug)]
struct Registered<S> {
    set: Box<[BackendPolicy]>,
    state: S,
}

impl<S> Default for Registry<S> {
    fn default() -> Self {
        Self {
            sets: boxcar::Vec::new(),
            registering: Mutex::new(()),
        }
    }
}

impl<S> Registry<S> {
    /// Returns the ids of `policies`, which form one [set](Registry). If an equal set is already registered, returns
    /// the ids of its policies. Otherwise registers the set, with the state that `prepare` returns.
    ///
    /// # Errors
    ///
    /// An invalid policy, more than 32 policies, more than 2²⁷ sets, or the error of `prepare`. Then nothing is
    /// registered.
    pub fn register(
        &self,
        policies: &[Policy],
        prepare: impl FnOnce() -> Result<S, BuildError>,
    ) -> Result<Vec<PolicyId>, BuildError> {
        let number = policies.len();
        ensure!(number <= PLACES, "number of policies" is number, "at most {PLACES} with this backend");
        policies.iter().try_for_each(Policy::check)?;
        let set: Box<[_]> = policies.iter().map(|one| one.backend.clone()).collect();
        let _registering = self
            .registering
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let equal = self.sets.iter().find(|(_, one)| one.set == set);
        let number = match equal {
            Some((number, _)) => number,
            None => {
                let number = self.sets.count();
                ensure!(number < MAX_SETS, "sets of policies" is number, "fewer with one backend");
                let state = prepare()?;
                self.sets.push(Registered { set, state })
            }
        };
        let first = number << PLACE_BITS;
        let ids = (first..first + policies.len()).map(|id| u32::try_from(id).unwrap_or(u32::MAX));
        Ok(ids.map(PolicyId::new).collect())
    }

    /// Returns the state of the [set](Registry) that contains the charge's policy, and the policy's index in the set.
    ///
    /// # Errors
    ///
    /// A charge to a policy that was not registered, or a charge with its own [`quota`](Charge::quota) to a policy
    /// without [`dynamic_quotas`](Policy::dynamic_quotas).
    #[inline]
    pub fn find(&self, charge: &Charge<'_>) -> Result<(&S, usize), BackendError> {
        let id = charge.policy.number() as usize;
        let place = id % PLACES;
        if let Some(one) = self.sets.get(id / PLACES)
            && let Some(policy) = one.set.get(place)
            && (charge.quota.is_none() || policy.dynamic_quotas)
        {
            return Ok((&one.state, place));
        }
        Err(wrong_charge())
    }

    /// Returns the state of each registered set of policies, in the order of registration.
    pub fn states(&self) -> impl Iterator<Item = &S> {
        self.sets.iter().map(|(_, set)| &set.state)
    }
}

#[cold]
fn wrong_charge() -> BackendError {
    BackendError::new(
        "a charge to a policy that was not registered here, or with a quota of its own to one without dynamic_quotas",
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Quota;

    fn policy() -> Policy {
        Policy::new("a", Quota::per_minute(10))
    }

    /// Registers a set whose state is its number of policies.
    fn register(registry: &Registry<usize>, set: &[Policy]) -> Vec<PolicyId> {
        registry.register(set, || Ok(set.len())).unwrap()
    }

    /// `prepare` may divide by the window.
    #[test]
    fn an_invalid_policy_is_named_before_it_is_prepared() {
        let registry = Registry::<()>::default();
        let timeless = Policy::new("a", Quota::new(1, Duration::ZERO));
        let error = registry.register(&[policy(), timeless], || unreachable!());
        let error = error.unwrap_err().to_string();
        assert_eq!(
            error,
            "policy \"a\": window is 0ns, but must be at least 1ns"
        );
    }

    #[test]
    fn a_set_that_is_registered_again_is_the_same_and_is_not_prepared_again() {
        let registry = Registry::default();
        let set = || {
            [
                policy(),
                Policy::new("b", Quota::per_hour(9)).sliding_window_log(),
            ]
        };
        let ids = register(&registry, &set());
        for _ in 0..1000 {
            let again = registry.register(&set(), || unreachable!("it is known"));
            assert_eq!(again.unwrap(), ids);
        }
    }

    #[test]
    fn any_number_of_different_sets_can_be_registered_and_each_stays_what_it_is() {
        let registry = Registry::default();
        let set = |number: u64| [Policy::new("a", Quota::per_minute(number + 1))];
        let ids: Vec<_> = (0..1000)
            .map(|number| registry.register(&set(number), || Ok(number)).unwrap())
            .collect();
        for (number, ids) in (0..).zip(&ids) {
            let again = registry.register(&set(number), || unreachable!("it is known"));
            assert_eq!(again.unwrap(), *ids);
            let (state, place) = registry.find(&Charge::new(ids[0], b"", 1)).unwrap();
            assert_eq!((*state, place), (number, 0));
        }
        for id in [1, 32_000, u32::MAX] {
            let found = registry.find(&Charge::new(PolicyId::new(id), b"", 1));
            assert_eq!(
                found.unwrap_err().to_string(),
                "the rate limit's backend did not decide: a charge to a policy that was not registered here, or with a quota of its own to one without dynamic_quotas"
            );
        }
    }

    #[test]
    fn a_set_that_differs_in_anything_is_another_set() {
        let registry = Registry::default();
        let sets = [
            vec![policy()],
            vec![Policy::new("b", Quota::per_minute(10))],
            vec![Policy::new("a", Quota::per_minute(11))],
            vec![Policy::new("a", Quota::per_minute(10).burst(9))],
            vec![Policy::new("a", Quota::per_hour(600).burst(10))],
            vec![policy().dynamic_quotas()],
            vec![policy().colocate("there")],
            vec![policy().leaky_bucket()],
            vec![policy().fixed_window()],
            vec![policy().fixed_window_staggered()],
            vec![policy().sliding_window_buckets(4)],
            vec![policy().sliding_window_buckets(5)],
            vec![policy().sliding_window_strict(4)],
            vec![policy().leaky_queue(Duration::from_secs(1))],
            vec![policy().leaky_queue(Duration::from_secs(2))],
            vec![policy(), Policy::new("b", Quota::per_minute(10))],
            vec![Policy::new("b", Quota::per_minute(10)), policy()],
        ];
        let mut seen = Vec::new();
        for set in &sets {
            let ids = register(&registry, set);
            assert!(!seen.contains(&ids), "{set:?}");
            seen.push(ids);
        }
    }

    #[test]
    fn a_set_that_cannot_be_prepared_is_not_registered() {
        let registry = Registry::default();
        for _ in 0..3 {
            let error = BuildError::new("limit", 0, "at least 1");
            assert!(registry.register(&[policy()], || Err(error)).is_err());
        }
        assert_eq!(register(&registry, &[policy()]), [PolicyId::new(0)]);
        let many: Vec<Policy> = (0..33)
            .map(|n| Policy::new(n.to_string(), Quota::per_second(1)))
            .collect();
        assert!(registry.register(&many, || Ok(33)).is_err());
    }

    #[test]
    fn a_quota_goes_only_to_a_policy_that_takes_quotas() {
        let registry = Registry::default();
        let quota = Quota::per_second(1);
        let set = [policy(), Policy::new("b", quota).dynamic_quotas()];
        let ids = register(&registry, &set);
        let found = |id| registry.find(&Charge::new(id, b"", 1).quota(quota)).is_ok();
        assert_eq!((found(ids[0]), found(ids[1])), (false, true));
    }
}
