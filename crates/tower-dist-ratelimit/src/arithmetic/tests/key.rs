use std::sync::Arc;

use crate::{
    Algorithm, BuildError, Decision, Quota,
    algorithm::{Arithmetic, Bucket, FixedWindow, Take},
    arithmetic::{Limit, State},
};

/// One key of any algorithm. After each change its state is written as bytes and read again.
#[derive(Clone)]
pub(crate) struct Key {
    limit: Limit,
    state: State,
    bits: u64,
}

impl Key {
    /// A key with a fixed quota. The state of its bucket or queue is one number, as in `Memory`.
    pub(crate) fn new(algorithm: Algorithm, quota: Quota) -> Result<Self, BuildError> {
        algorithm.check(quota)?;
        Ok(match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                Self::of(Bucket::<false>::new(quota, None)?, 0)
            }
            Algorithm::LeakyQueue { max_wait } => {
                Self::of(Bucket::<true>::new(quota, Some(max_wait))?, 0)
            }
            windows => Self::dynamic(windows, quota)?,
        })
    }

    /// A key with dynamic quotas.
    pub(crate) fn dynamic(algorithm: Algorithm, quota: Quota) -> Result<Self, BuildError> {
        Ok(Self::with(Limit::new(algorithm, quota)?, 0))
    }

    fn of(arithmetic: impl Arithmetic + 'static, bits: u64) -> Self {
        let limit = Limit {
            arithmetic: Arc::new(arithmetic),
            kind: 0,
            longest: std::time::Duration::MAX,
        };
        Self::with(limit, bits)
    }

    fn with(limit: Limit, bits: u64) -> Self {
        let state = limit.unused(bits);
        Self { limit, state, bits }
    }

    /// A key with windows that begin at its own time.
    pub(crate) fn staggered(windows: FixedWindow, bits: u64) -> Self {
        Self::of(windows, bits)
    }

    /// Continues with the state that the bytes hold.
    fn reread(&mut self) {
        let bytes = self.state.to_bytes();
        self.state = self.limit.read(self.bits, &bytes).unwrap();
        assert_eq!(self.state.to_bytes(), bytes);
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.state.to_bytes()
    }

    pub(crate) fn decide(&self, nanos: u64, take: &Take<'_>) -> Decision {
        self.state.look(nanos, take)
    }

    pub(crate) fn take(&mut self, nanos: u64, take: &Take<'_>, tokens: u64) {
        if tokens > 0 {
            let now = self.state.when(nanos);
            let arithmetic = &self.limit.arithmetic;
            arithmetic.take(&mut self.state.words, now, take, tokens);
            self.reread();
        }
    }

    /// Decides and takes.
    pub(crate) fn charge(&mut self, nanos: u64, cost: u64) -> Decision {
        self.charge_by(nanos, &super::take(cost))
    }

    pub(crate) fn charge_by(&mut self, nanos: u64, take: &Take<'_>) -> Decision {
        let decision = self.decide(nanos, take);
        self.take(nanos, take, decision.granted);
        if !decision.allowed {
            self.adopt(nanos, take);
        }
        decision
    }

    pub(super) fn adopt(&mut self, nanos: u64, take: &Take<'_>) {
        let now = self.state.when(nanos);
        let arithmetic = &self.limit.arithmetic;
        arithmetic.adopt(&mut self.state.words, now, take);
        self.reread();
    }

    pub(crate) fn settle(&mut self, nanos: u64, delta: i64) -> bool {
        self.settle_by(nanos, &super::take(0), delta)
    }

    pub(crate) fn settle_by(&mut self, nanos: u64, take: &Take<'_>, delta: i64) -> bool {
        let now = self.state.when(nanos);
        let arithmetic = &self.limit.arithmetic;
        let changed = arithmetic.settle(&mut self.state.words, now, take, delta);
        self.reread();
        changed
    }

    pub(crate) fn pressure(&self, nanos: u64) -> u64 {
        let (words, now) = (&self.state.words, self.state.when(nanos));
        self.limit.arithmetic.pressure(words, now)
    }
}
