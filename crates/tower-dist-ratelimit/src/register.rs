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
    if policies.is_empty() {
        return Err(BuildError::new("number of policies", 0, "at least 1"));
    }
    if policies.len() > most {
        let bound = format!("at most {most} with this backend");
        return Err(BuildError::new("number of policies", policies.len(), bound));
    }
    for (number, policy) in policies.iter().enumerate() {
        policy.check()?;
        if policies[..number]
            .iter()
            .any(|other| other.name() == policy.name())
        {
            return Err(BuildError::new(
                "name",
                format_args!("{:?}", policy.name()),
                "another for each policy",
            )
            .in_policy(policy.name()));
        }
    }
    Ok(())
}

/// Registers a set of checked policies.
pub(crate) fn register_checked(
    backend: &dyn Backend,
    policies: &[Policy],
) -> Result<Vec<PolicyId>, BuildError> {
    let ids = backend.register(policies)?;
    if ids.len() != policies.len() {
        // A policy without an id would admit every request.
        let value = format!(
            "one that names {} of {} policies",
            ids.len(),
            policies.len()
        );
        return Err(BuildError::new("backend", value, "one that names each"));
    }
    Ok(ids)
}
