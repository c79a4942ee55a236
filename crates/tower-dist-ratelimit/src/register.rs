//! Checks sets of policies and registers them with a backend.

use crate::{
    BuildError, Policy,
    backend::{Backend, PolicyId},
};

/// Checks a set of policies and registers it.
pub(crate) fn register(
    backend: &dyn Backend,
    policies: &[Policy],
) -> Result<Vec<PolicyId>, BuildError> {
    check(backend, policies)?;
    register_checked(backend, policies)
}

/// Checks a set of policies, except for the bounds of the backend's own arithmetic.
pub(crate) fn check(backend: &dyn Backend, policies: &[Policy]) -> Result<(), BuildError> {
    let most = backend.max_policies();
    let (number, bound) = (policies.len(), format!("at most {most} with this backend"));
    BuildError::ensure(number > 0, "number of policies", 0, "at least 1")?;
    BuildError::ensure(number <= most, "number of policies", number, bound)?;
    for (number, policy) in policies.iter().enumerate() {
        policy.check()?;
        let name = policy.name();
        let is_new = policies[..number].iter().all(|other| other.name() != name);
        let value = format!("{name:?}");
        BuildError::ensure(is_new, "name", value, "another for each policy")
            .map_err(|error| error.in_policy(name))?;
    }
    Ok(())
}

/// Registers a set of checked policies.
pub(crate) fn register_checked(
    backend: &dyn Backend,
    policies: &[Policy],
) -> Result<Vec<PolicyId>, BuildError> {
    let ids = backend.register(policies)?;
    // A policy without an id would admit every request.
    let (named, number) = (ids.len(), policies.len());
    let value = format!("one that names {named} of {number} policies");
    BuildError::ensure(named == number, "backend", value, "one that names each")?;
    Ok(ids)
}
