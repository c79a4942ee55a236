use std::{fmt::Write, sync::Arc};

use super::{
    compiled_policy::CompiledPolicy,
    rate::{MOST_USED, Rate},
    source::{self, fill},
};

/// The scripts treat a stored time as invalid if it is more than this number of microseconds after now. A bucket with
/// the largest debt and the slowest rate stores the latest time. A quarter is added, because the clock may jump back.
const FURTHEST: u64 = MOST_USED + MOST_USED / 4;

/// Milliseconds added to a key's time to live, so that the key does not expire before its last used token is available
/// again.
const SLACK: u64 = 2;

/// A script that decides on requests to one policy, or to several policies together.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) policies: Vec<Arc<CompiledPolicy>>,
    pub(super) lua: String,
    /// The SHA-1 of `lua`. The server caches the script under this hash.
    pub(super) sha: String,
    /// The rate of the bucket, if the script can decide on a [`run`](super::run) of equal requests in one step.
    pub(super) runs: Option<Rate>,
}

impl Script {
    pub(super) fn new(policies: Vec<Arc<CompiledPolicy>>) -> Self {
        Self::with_clock(policies, source::CLOCK, SLACK)
    }

    /// Makes a script that uses this clock, and this slack instead of [`SLACK`].
    pub(super) fn with_clock(policies: Vec<Arc<CompiledPolicy>>, clock: &str, slack: u64) -> Self {
        let everywhere = [
            ("FURTHEST", FURTHEST),
            ("SLACK", slack),
            ("MOST", (1 << 53) - 1),
        ];
        let single = match &policies[..] {
            [one] => one.single.as_ref(),
            _ => None,
        };
        let lua = match single {
            Some(single) => [clock, &fill(&single.lua, &everywhere)].concat(),
            None => Self::together(&policies, clock, &fill(source::COMMON, &everywhere)),
        };
        let sha = redis::Script::new(&lua).get_hash().to_owned();
        let runs = single.map(|single| single.rate);
        Self {
            policies,
            lua,
            sha,
            runs,
        }
    }

    fn together(policies: &[Arc<CompiledPolicy>], clock: &str, common: &str) -> String {
        let mut lua = [clock, common].concat();
        lua.push_str("local policies, asks = {}, {}\n");
        for (number, policy) in policies.iter().enumerate() {
            let _ = write!(
                lua,
                "do\n{}  policies[{n}] = {{ open = open, decide = decide, take = take, settle = settle, save = save, quota = quota, adopt = adopt }}\n  asks[{n}] = {{}}\nend\n",
                policy.lua,
                n = number + 1,
            );
        }
        lua.push_str(&source::DECIDE.replace("POLICIES", &policies.len().to_string()));
        lua
    }
}

#[cfg(test)]
impl Script {
    /// The script of a bucket of 5 tokens per second.
    pub(super) fn of_five() -> Arc<Self> {
        let policy =
            tower_dist_ratelimit::Policy::new("p", tower_dist_ratelimit::Quota::per_second(5));
        let policy = CompiledPolicy::new("rl", &policy).into_iter().map(Arc::new);
        Arc::new(Self::new(policy.collect()))
    }
}
