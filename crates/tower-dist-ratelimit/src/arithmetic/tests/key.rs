use crate::{
    Algorithm, BuildError, Decision, Quota,
    algorithm::{Ask, FixedWindow, LeakyQueue, Restored, TokenBucket, Words},
    arithmetic::{Limit, State},
};

/// One key of any algorithm. After each change its state is written as bytes and read again.
pub(crate) struct Key {
    limit: Limit,
    state: State,
    bits: u64,
}

/// The arithmetic of quotas that cannot change, as `Memory` uses it: its state is one number.
macro_rules! fixed_quota {
    ($arithmetic:ty, $kind:literal) => {
        impl Restored for $arithmetic {
            const KIND: u8 = $kind;

            fn words(state: &u64) -> Words {
                [*state].into_iter().collect()
            }

            fn restore(&self, words: &[u64]) -> Option<u64> {
                Some(words.first().copied().unwrap_or(0))
            }
        }
    };
}

fixed_quota!(TokenBucket, 1);
fixed_quota!(LeakyQueue, 2);

impl Key {
    pub(crate) fn new(algorithm: Algorithm, quota: Quota) -> Result<Self, BuildError> {
        algorithm.check(quota)?;
        let longest = std::time::Duration::MAX;
        Ok(match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                Self::of(Limit::of(TokenBucket::new(quota)?, longest), 0)
            }
            Algorithm::LeakyQueue { max_wait } => {
                Self::of(Limit::of(LeakyQueue::new(quota, max_wait)?, longest), 0)
            }
            windows => Self::dynamic(windows, quota)?,
        })
    }

    /// With quotas that can change.
    pub(crate) fn dynamic(algorithm: Algorithm, quota: Quota) -> Result<Self, BuildError> {
        Ok(Self::of(Limit::new(algorithm, quota)?, 0))
    }

    pub(crate) fn of(limit: Limit, bits: u64) -> Self {
        let state = limit.unused(bits);
        Self { limit, state, bits }
    }

    /// A key whose windows begin at a place of its own.
    pub(crate) fn staggered(windows: FixedWindow, bits: u64) -> Self {
        Self::of(Limit::of(windows, std::time::Duration::MAX), bits)
    }

    /// Goes on with what the bytes say.
    fn reread(&mut self) {
        let bytes = self.state.to_bytes();
        self.state = self.limit.read(self.bits, &bytes).unwrap();
        assert_eq!(self.state.to_bytes(), bytes);
    }

    pub(crate) fn decide(&self, nanos: u64, ask: &Ask<'_>) -> Decision {
        self.state.look(nanos, ask)
    }

    pub(crate) fn take(&mut self, nanos: u64, ask: &Ask<'_>, tokens: u64) {
        if tokens > 0 {
            self.state.0.take(nanos, ask, tokens);
            self.reread();
        }
    }

    /// Decides and takes.
    pub(crate) fn charge(&mut self, nanos: u64, cost: u64) -> Decision {
        self.charge_by(nanos, &super::ask(cost))
    }

    pub(crate) fn charge_by(&mut self, nanos: u64, ask: &Ask<'_>) -> Decision {
        let decision = self.decide(nanos, ask);
        self.take(nanos, ask, decision.granted);
        if !decision.allowed {
            self.adopt(nanos, ask);
        }
        decision
    }

    pub(crate) fn adopt(&mut self, nanos: u64, ask: &Ask<'_>) -> bool {
        let changed = self.state.0.adopt(nanos, ask);
        self.reread();
        changed
    }

    pub(crate) fn settle(&mut self, nanos: u64, delta: i64) -> bool {
        self.settle_by(nanos, &super::ask(0), delta)
    }

    pub(crate) fn settle_by(&mut self, nanos: u64, ask: &Ask<'_>, delta: i64) -> bool {
        let changed = self.state.0.settle(nanos, ask, delta);
        self.reread();
        changed
    }

    pub(crate) fn pressure(&self, nanos: u64) -> u64 {
        self.state.0.pressure(nanos)
    }
}
