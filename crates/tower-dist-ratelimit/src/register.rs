//! Checks sets of policies and registers them with a backend.

use crate::{
    BuildError, Policy,
    backend::{Backend, PolicyId},
    build_error::ensure,
};

type RegisterResult = Result<Vec<PolicyId>, BuildError>;

/// Checks a set of policies and registers it.
pub(crate) fn register(backend: &dyn Backend, policies: &[Policy]) -> RegisterResult {
    check(backend, policies)?;
    register_checked(backend, policies)
}

/// Checks a set of policies, except for what only the backend's `register` can check, such as whether it supports the
/// algorithms and can count the quotas.
pub(crate) fn check(backend: &dyn Backend, policies: &[Policy]) -> Result<(), BuildError> {
    let most = backend.max_policies();
    let number = policies.len();
    ensure!(number > 0, "number of policies" is 0, "at least 1");
    ensure!(number <= most, "number of policies" is number, "at most {most} with this backend");
    for (number, policy) in policies.iter().enumerate() {
        policy.check()?;
        let name = policy.name();
        if policies[..number].iter().any(|other| other.name() == name) {
            let error =
                BuildError::new("name", format_args!("{name:?}"), "another for each policy");
            return Err(error.in_policy(name));
        }
    }
    Ok(())
}

/// Registers a set of checked policies.
pub(crate) fn register_checked(backend: &dyn Backend, policies: &[Policy]) -> RegisterResult {
    let ids = backend.register(policies)?;
    // A policy without an id would admit every request.
    let (named, number) = (ids.len(), policies.len());
    if named != number {
        let value = format!("one that names {named} of {number} policies");
        return Err(BuildError::new("backend", value, "one that names each"));
    }
    Ok(ids)
}
