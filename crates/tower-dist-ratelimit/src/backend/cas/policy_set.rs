use std::time::Duration;

use super::{
    clock::SKEW,
    keys::{Keys, bits},
};
use crate::{
    Algorithm, BuildError, Policy,
    arithmetic::{Limit, State},
    backend::toolkit::Tag,
};

/// The longest logs of a set, in tokens of all of them together. Each token takes at most 18 bytes of a value.
const MAX_TOKENS: u64 = 4_000;

/// Policies that are decided together. Their states for one key are one value.
pub(super) struct PolicySet {
    keys: Keys,
    pub(super) limits: Vec<Limit>,
    /// How much longer a value is kept than anything in it counts.
    slack: Duration,
}

impl PolicySet {
    /// # Errors
    ///
    /// A prefix that cannot stand in a store key, or a policy that cannot be kept.
    pub(super) fn new(prefix: &str, policies: &[Policy]) -> Result<Self, BuildError> {
        let is_prefix =
            (1..=64).contains(&prefix.len()) && prefix.bytes().all(|b| b.is_ascii_graphic());
        if !is_prefix {
            let bound = "1 to 64 printable ASCII characters without spaces";
            return Err(BuildError::new("prefix", format_args!("{prefix:?}"), bound));
        }
        let is_log = |policy: &&Policy| policy.algorithm() == Algorithm::SlidingWindowLog;
        let logs = policies.iter().filter(is_log).count() as u64;
        let longest = MAX_TOKENS / logs.max(1);
        let limits = policies.iter().map(|policy| {
            Limit::with_longest_log(policy.algorithm(), policy.quota(), longest)
                .map_err(|error| error.in_policy(policy.name()))
        });
        let windows = policies
            .iter()
            .filter(|policy| policy.algorithm().has_windows());
        let longest = windows.map(|policy| policy.quota().window()).max();
        Ok(Self {
            keys: Keys::new(prefix, policies),
            limits: limits.collect::<Result<_, _>>()?,
            // One second more, for stores whose clocks tick once a second.
            slack: longest.unwrap_or_default().min(SKEW) + Duration::from_secs(1),
        })
    }

    pub(super) fn key(&self, tag: &Tag) -> Vec<u8> {
        self.keys.of(tag)
    }

    /// Reads the states of a value. From the first state on that cannot be read, policies count as unused.
    pub(super) fn read(&self, tag: &Tag, value: Option<&[u8]>) -> Vec<State> {
        let bits = bits(tag);
        let mut rest = value.unwrap_or_default();
        let states = self.limits.iter().map(|limit| {
            let state = limit.read_next(bits, &mut rest);
            state.unwrap_or_else(|| {
                rest = &[];
                limit.unused(bits)
            })
        });
        states.collect()
    }

    pub(super) fn write(states: &[State]) -> Vec<u8> {
        let mut value = Vec::with_capacity(32);
        for state in states {
            state.write(&mut value);
        }
        value
    }

    /// Returns how long a value has to be kept.
    pub(super) fn ttl(&self, states: &[State], nanos: u64) -> Duration {
        let longest = states.iter().map(|state| state.expires_after(nanos)).max();
        longest.unwrap_or_default().saturating_add(self.slack)
    }
}
