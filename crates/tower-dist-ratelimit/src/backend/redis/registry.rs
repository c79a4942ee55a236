use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use smallvec::SmallVec;

use super::{rule::Rule, script::Script};
use crate::backend::{BackendError, Charge, PolicyId};

/// What was registered, and the scripts for it.
///
/// A set that is registered again is the one that was there, so that a service which builds its limits anew, time and
/// again, takes no more memory than one that does not.
#[derive(Debug, Default)]
pub(super) struct Registry(RwLock<Registered>);

#[derive(Debug, Default)]
struct Registered {
    rules: Vec<Arc<Rule>>,
    /// Of each set as it was registered, where the first of its rules is: nearly all requests are to a whole set.
    whole: Vec<Option<Arc<Script>>>,
    /// By the policies that are decided together: what of a set applies to a request.
    scripts: HashMap<SmallVec<[PolicyId; 4]>, Arc<Script>>,
}

impl Registry {
    /// Names the rules of a set; as before, if all are what they were.
    pub(super) fn register(&self, rules: Vec<Rule>) -> Vec<PolicyId> {
        let mut registered = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let len = rules.len();
        let first = registered.find(&rules).unwrap_or_else(|| {
            let first = registered.rules.len();
            let rules: Vec<Arc<Rule>> = rules.into_iter().map(Arc::new).collect();
            registered.whole.resize(first + len, None);
            if let Some(whole) = registered.whole.get_mut(first) {
                *whole = Some(Arc::new(Script::new(rules.clone())));
            }
            registered.rules.extend(rules);
            first
        });
        (first..first + len)
            .map(|number| PolicyId::new(u32::try_from(number).unwrap_or(u32::MAX)))
            .collect()
    }

    /// The script that decides on these charges.
    pub(super) fn script(&self, charges: &[Charge<'_>]) -> Result<Arc<Script>, BackendError> {
        let registered = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(script) = registered.whole_set(charges) {
            return Ok(Arc::clone(script));
        }
        let ids: SmallVec<[PolicyId; 4]> = charges.iter().map(|charge| charge.policy).collect();
        if let Some(script) = registered.scripts.get(&ids) {
            return Ok(Arc::clone(script));
        }
        drop(registered);
        // Some of a set, for a request to which the others do not apply.
        let mut registered = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let rules = ids.iter().map(|&id| registered.rule(id));
        let rules = rules.collect::<Result<_, _>>()?;
        let script = registered
            .scripts
            .entry(ids)
            .or_insert_with(|| Arc::new(Script::new(rules)));
        Ok(Arc::clone(script))
    }

    pub(super) fn rule(&self, policy: PolicyId) -> Result<Arc<Rule>, BackendError> {
        let registered = self.0.read().unwrap_or_else(PoisonError::into_inner);
        registered.rule(policy)
    }
}

impl Registered {
    /// Where a set of the same rules is.
    fn find(&self, rules: &[Rule]) -> Option<usize> {
        let is_same = |script: &Arc<Script>| {
            let known = script.rules.iter().map(|rule| &**rule);
            known.eq(rules)
        };
        self.whole
            .iter()
            .position(|script| script.as_ref().is_some_and(is_same))
    }

    /// The script of these policies, if they are all of a set.
    fn whole_set(&self, charges: &[Charge<'_>]) -> Option<&Arc<Script>> {
        let first = charges.first()?.policy.number();
        let script = self.whole.get(usize::try_from(first).ok()?)?.as_ref()?;
        let numbers = charges.iter().map(|charge| charge.policy.number());
        let is_whole =
            script.rules.len() == charges.len() && numbers.eq((first..).take(charges.len()));
        is_whole.then_some(script)
    }

    fn rule(&self, policy: PolicyId) -> Result<Arc<Rule>, BackendError> {
        usize::try_from(policy.number())
            .ok()
            .and_then(|number| self.rules.get(number))
            .map(Arc::clone)
            .ok_or_else(|| BackendError::new("this policy was not registered here"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, Quota};

    fn rules(policies: &[Policy]) -> Vec<Rule> {
        let rules = policies.iter().map(|policy| Rule::new("rl", policy));
        rules.collect::<Result<_, _>>().unwrap()
    }

    fn size(registry: &Registry) -> (usize, usize) {
        let registered = registry.0.read().unwrap();
        (registered.rules.len(), registered.scripts.len())
    }

    #[test]
    fn a_set_that_is_registered_again_is_the_same_and_takes_no_memory() {
        let registry = Registry::default();
        let set = |limit| {
            let quota = Quota::per_minute(limit);
            [
                Policy::new("a", quota),
                Policy::new("b", quota).sliding_log(),
            ]
        };
        let ids = registry.register(rules(&set(10)));
        let part = [Charge::new(ids[1], b"", 1)];
        let script = registry.script(&part).unwrap();
        let before = size(&registry);
        for _ in 0..1000 {
            assert_eq!(registry.register(rules(&set(10))), ids);
            assert!(Arc::ptr_eq(&registry.script(&part).unwrap(), &script));
        }
        assert_eq!(size(&registry), before);
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
            vec![policy().colocate("there")],
            vec![policy().fixed_window()],
            vec![policy().phase_per_key()],
            vec![policy().sub_windows(4)],
            vec![policy().sub_windows(5)],
            vec![policy().whole_sub_windows(4)],
            vec![policy().leaky_queue(std::time::Duration::from_secs(1))],
            vec![policy().leaky_queue(std::time::Duration::from_secs(2))],
            vec![policy(), Policy::new("b", Quota::per_minute(10))],
            vec![Policy::new("b", Quota::per_minute(10)), policy()],
        ];
        let mut seen = Vec::new();
        for set in &sets {
            let ids = registry.register(rules(set));
            assert!(!seen.contains(&ids), "{set:?}");
            seen.push(ids);
        }
        // And each is still what it was.
        for (set, ids) in sets.iter().zip(seen) {
            assert_eq!(registry.register(rules(set)), ids);
        }
    }
}
