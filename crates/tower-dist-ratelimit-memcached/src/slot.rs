use std::time::Duration;

use tower_dist_ratelimit::{
    Algorithm, BuildError, Decision, Policy,
    algorithm::{
        Adjusted, Arithmetic, Ask, FirstHit, FixedWindow, LeakyQueue, Restored, SlidingWindow,
        TokenBucket, Words,
    },
};

/// One policy's arithmetic, on states as they are kept in a value.
pub(super) trait Slot: Send + Sync {
    fn decide(&self, words: &Words, at: At, ask: &Ask<'_>, out: &mut Decision);

    fn take(&self, words: &mut Words, at: At, ask: &Ask<'_>, tokens: u64);

    /// Puts the quota of a rejected request in force. Whether anything has changed.
    fn adopt(&self, words: &mut Words, at: At, ask: &Ask<'_>) -> bool;

    /// Whether anything has changed.
    fn settle(&self, words: &mut Words, at: At, ask: &Ask<'_>, delta: i64) -> bool;

    /// How long the words have something to say.
    fn lasts(&self, words: &Words, at: At) -> Duration;

    /// Whether these words can be counted with.
    fn holds(&self, words: &Words) -> bool;
}

/// A time, and 64 bits of the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) nanos: u64,
    pub(super) key: u64,
}

impl<A: Restored> Slot for A {
    fn decide(&self, words: &Words, at: At, ask: &Ask<'_>, out: &mut Decision) {
        let state = self.restore(words).unwrap_or_default();
        Arithmetic::decide(self, &state, self.at(at.nanos, at.key), ask, out);
    }

    fn take(&self, words: &mut Words, at: At, ask: &Ask<'_>, tokens: u64) {
        let mut state = self.restore(words).unwrap_or_default();
        Arithmetic::take(self, &mut state, self.at(at.nanos, at.key), ask, tokens);
        *words = Self::words(&state);
    }

    fn adopt(&self, words: &mut Words, at: At, ask: &Ask<'_>) -> bool {
        let mut state = self.restore(words).unwrap_or_default();
        let changed = Arithmetic::adopt(self, &mut state, self.at(at.nanos, at.key), ask);
        if changed {
            *words = Self::words(&state);
        }
        changed
    }

    fn settle(&self, words: &mut Words, at: At, ask: &Ask<'_>, delta: i64) -> bool {
        let mut state = self.restore(words).unwrap_or_default();
        let now = self.at(at.nanos, at.key);
        let changed = Arithmetic::settle(self, &mut state, now, ask, delta);
        if changed {
            *words = Self::words(&state);
        }
        changed
    }

    fn lasts(&self, words: &Words, at: At) -> Duration {
        let state = self.restore(words).unwrap_or_default();
        // A clock that has jumped back does not make it longer.
        let nanos = at.nanos.max(Self::written(&state));
        Restored::lasts(self, &state, self.at(nanos, at.key))
    }

    fn holds(&self, words: &Words) -> bool {
        self.restore(words).is_some()
    }
}

/// A policy's.
///
/// # Errors
///
/// A policy that cannot be kept.
pub(super) fn slot(policy: &Policy) -> Result<Box<dyn Slot>, BuildError> {
    let quota = policy.quota();
    Ok(match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            Box::new(Adjusted::new(quota, TokenBucket::new(quota)?))
        }
        Algorithm::LeakyQueue { max_wait } => {
            Box::new(Adjusted::new(quota, LeakyQueue::new(quota, max_wait)?))
        }
        Algorithm::FixedWindow { staggered } => Box::new(FixedWindow::new(quota, staggered)?),
        Algorithm::FixedWindowFromFirstRequest => Box::new(FirstHit::new(quota)?),
        Algorithm::SlidingWindow => Box::new(SlidingWindow::interpolated(quota, 1)?),
        Algorithm::SlidingWindowBuckets { count } => {
            Box::new(SlidingWindow::interpolated(quota, count)?)
        }
        Algorithm::SlidingWindowStrict { count } => Box::new(SlidingWindow::whole(quota, count)?),
        Algorithm::SlidingWindowLog => {
            let bound = "another one on Memcached, which keeps no lists; sliding_window_strict never admits more than the limit, either";
            return Err(BuildError::new("algorithm", "sliding_window_log", bound));
        }
        other => {
            let bound = "one that this version of the Memcached backend supports";
            return Err(BuildError::new(
                "algorithm",
                format_args!("{other:?}"),
                bound,
            ));
        }
    })
}
