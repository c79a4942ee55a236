use std::time::Duration;

use crate::{
    Algorithm, BuildError, Policy,
    arithmetic::{Limit, State},
    backend::toolkit::{Keys, SKEW, Tag, tag_bits},
    build_error::ensure,
};

/// Maximum sum of the limits of all sliding window logs of a set. Each log has an equal share. An entry of a log takes
/// at most 18 bytes of a value.
const MAX_TOKENS: u64 = 4_000;

/// Policies that are decided together. Their states for one key are one value.
pub(super) struct PolicySet {
    pub(super) keys: Keys,
    pub(super) limits: Vec<Limit>,
    /// The time for which a value is kept after all of its tokens are free again.
    slack: Duration,
}

impl PolicySet {
    /// # Errors
    ///
    /// An invalid prefix, a quota that is invalid or too large to count, or a log that is too long for a value.
    pub(super) fn new(prefix: &str, policies: &[Policy]) -> Result<Self, BuildError> {
        let is_prefix =
            (1..=64).contains(&prefix.len()) && prefix.bytes().all(|b| b.is_ascii_graphic());
        ensure!(is_prefix, "prefix" is prefix, "1 to 64 printable ASCII characters without spaces");
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
            keys: keys(prefix, policies),
            limits: limits.collect::<Result<_, _>>()?,
            // Another second, for stores whose clocks tick once a second.
            slack: longest.unwrap_or_default().min(SKEW) + Duration::from_secs(1),
        })
    }

    /// Reads the states of a value, one per policy. If a state cannot be read, it and all later states count as unused.
    pub(super) fn read(&self, tag: &Tag, value: Option<&[u8]>) -> Vec<State> {
        let bits = tag_bits(tag);
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

fn keys(prefix: &str, policies: &[Policy]) -> Keys {
    if let [policy] = policies {
        return Keys::new(prefix, &layout(policy), policy.name());
    }
    let parts = policies.iter().map(|policy| {
        let name = policy.name();
        format!("{} {name} {} ", name.len(), layout(policy))
    });
    Keys::new(prefix, "s1", &parts.collect::<String>())
}

/// Returns the layout of a policy's state: the algorithm, the length of a window or log, and the number of sub-windows
/// if there are several. The count of a long window means nothing in a short window, so windows of different lengths
/// have different layouts.
fn layout(policy: &Policy) -> String {
    let window = policy.quota().window().as_nanos();
    match policy.algorithm() {
        Algorithm::TokenBucket => "b".to_owned(),
        Algorithm::LeakyBucket => "m".to_owned(),
        Algorithm::LeakyQueue { .. } => "q".to_owned(),
        Algorithm::FixedWindowFromFirstRequest => format!("h{window}"),
        Algorithm::FixedWindow { staggered } => {
            format!("{}{window}", if staggered { 'p' } else { 'f' })
        }
        Algorithm::SlidingWindowBuckets { count } => format!("w{window}.{count}"),
        Algorithm::SlidingWindowStrict { count } => format!("v{window}.{count}"),
        Algorithm::SlidingWindow => format!("t{window}"),
        Algorithm::SlidingWindowLog => format!("l{window}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Quota, arithmetic::HORIZON, backend::toolkit::tag};

    #[test]
    fn store_keys_are_short_and_have_no_spaces() {
        let prefix = "p".repeat(64);
        let policy =
            |name: &str| Policy::new(name, Quota::new(1, HORIZON)).sliding_window_strict(100);
        for name in ["login", "a b", &"n".repeat(64), &" ".repeat(64), "\"\\%{}"] {
            for set in [vec![policy(name)], vec![policy(name), policy("b")]] {
                let key = keys(&prefix, &set).of(&tag(b" \r\n\0")).concat();
                assert!(key.len() <= 220, "{}", key.len());
                assert!(key.iter().all(u8::is_ascii_graphic));
            }
        }
    }
}
