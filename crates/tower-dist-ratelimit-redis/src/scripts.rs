use std::sync::Arc;

use super::{compiled_policy::CompiledPolicy, script::Script};

/// The scripts of a set of policies: one script for each policy, and one for several policies together.
///
/// If some of the policies do not apply to a request, the request uses the same script and [omits](super::call::Call::asks)
/// those policies. So the number of scripts does not depend on the combinations of policies that requests cause.
#[derive(Debug)]
pub(super) struct Scripts {
    /// For each policy, the script for calls that charge only this policy.
    pub(super) single: Vec<Arc<Script>>,
    /// The script for several policies.
    pub(super) whole: Arc<Script>,
}

impl Scripts {
    pub(super) fn new(policies: Vec<CompiledPolicy>) -> Self {
        let policies: Vec<Arc<CompiledPolicy>> = policies.into_iter().map(Arc::new).collect();
        let single = policies
            .iter()
            .map(|policy| Script::new(vec![Arc::clone(policy)]));
        let single: Vec<Arc<Script>> = single.map(Arc::new).collect();
        let whole = match &single[..] {
            [only] => Arc::clone(only),
            _ => Arc::new(Script::new(policies)),
        };
        Self { single, whole }
    }
}
