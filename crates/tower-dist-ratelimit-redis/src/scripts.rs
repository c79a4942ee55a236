use std::sync::Arc;

use super::{compiled_policy::CompiledPolicy, script::Script};

/// The scripts of a set of policies: one script for each policy, and one for several policies together.
///
/// If a call charges several policies, but not all, it uses the script for several policies and
/// [omits](super::call::ScriptCall::asks) the others. So the number of scripts does not depend on which combinations of
/// policies occur.
#[derive(Debug)]
pub(super) struct Scripts {
    /// For each policy, the script for calls that charge only this policy.
    pub(super) single: Vec<Arc<Script>>,
    /// The script for several policies. If the set has one policy, this is the script of that policy.
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
