use crate::{
    Algorithm, BuildError, Decision, Quota,
    algorithm::{
        Adjusted, Arithmetic, Ask, FirstHit, FixedWindow, LeakyQueue, SlidingLog, SlidingWindow,
        TokenBucket,
    },
};

/// One key of any algorithm.
pub(crate) struct Key(Box<dyn Keyed>);

struct One<A: Arithmetic> {
    arithmetic: A,
    state: A::State,
    bits: u64,
}

trait Keyed {
    fn decide(&self, nanos: u64, ask: &Ask<'_>, out: &mut Decision);
    fn take(&mut self, nanos: u64, ask: &Ask<'_>, tokens: u64);
    fn adopt(&mut self, nanos: u64, ask: &Ask<'_>) -> bool;
    fn settle(&mut self, nanos: u64, ask: &Ask<'_>, delta: i64) -> bool;
    fn pressure(&self, nanos: u64) -> u64;
}

impl<A: Arithmetic> Keyed for One<A> {
    fn decide(&self, nanos: u64, ask: &Ask<'_>, out: &mut Decision) {
        let now = self.arithmetic.at(nanos, self.bits);
        self.arithmetic.decide(&self.state, now, ask, out);
    }

    fn take(&mut self, nanos: u64, ask: &Ask<'_>, tokens: u64) {
        let now = self.arithmetic.at(nanos, self.bits);
        self.arithmetic.take(&mut self.state, now, ask, tokens);
    }

    fn adopt(&mut self, nanos: u64, ask: &Ask<'_>) -> bool {
        let now = self.arithmetic.at(nanos, self.bits);
        self.arithmetic.adopt(&mut self.state, now, ask)
    }

    fn settle(&mut self, nanos: u64, ask: &Ask<'_>, delta: i64) -> bool {
        let now = self.arithmetic.at(nanos, self.bits);
        self.arithmetic.settle(&mut self.state, now, ask, delta)
    }

    fn pressure(&self, nanos: u64) -> u64 {
        let now = self.arithmetic.at(nanos, self.bits);
        self.arithmetic.pressure(&self.state, now)
    }
}

impl Key {
    pub(crate) fn new(algorithm: Algorithm, quota: Quota) -> Result<Self, BuildError> {
        algorithm.check(quota)?;
        Ok(match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                Self::of(TokenBucket::new(quota)?, 0)
            }
            Algorithm::LeakyQueue { max_wait } => Self::of(LeakyQueue::new(quota, max_wait)?, 0),
            Algorithm::FixedWindow { phase_per_key } => {
                Self::of(FixedWindow::new(quota, phase_per_key)?, 0)
            }
            Algorithm::FirstHit => Self::of(FirstHit::new(quota)?, 0),
            Algorithm::TwoWindows => Self::of(SlidingWindow::interpolated(quota, 1)?, 0),
            Algorithm::SubWindows { count } => {
                Self::of(SlidingWindow::interpolated(quota, count)?, 0)
            }
            Algorithm::WholeSubWindows { count } => {
                Self::of(SlidingWindow::whole(quota, count)?, 0)
            }
            Algorithm::SlidingLog => Self::of(SlidingLog::new(quota)?, 0),
        })
    }

    /// With quotas that can change.
    pub(crate) fn dynamic(algorithm: Algorithm, quota: Quota) -> Result<Self, BuildError> {
        Ok(match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                Self::of(Adjusted::new(quota, TokenBucket::new(quota)?), 0)
            }
            Algorithm::LeakyQueue { max_wait } => {
                Self::of(Adjusted::new(quota, LeakyQueue::new(quota, max_wait)?), 0)
            }
            windows => Self::new(windows, quota)?,
        })
    }

    /// A key of these bits, and with quotas that can change if so.
    #[cfg(feature = "redis")]
    pub(crate) fn with_bits(algorithm: Algorithm, quota: Quota, dynamic: bool, bits: u64) -> Self {
        let key = if dynamic {
            Self::dynamic(algorithm, quota)
        } else {
            Self::new(algorithm, quota)
        };
        match algorithm {
            Algorithm::FixedWindow {
                phase_per_key: true,
            } => Self::of(FixedWindow::new(quota, true).unwrap(), bits),
            _ => key.unwrap(),
        }
    }

    /// A key that has these bits.
    pub(crate) fn of(arithmetic: impl Arithmetic, bits: u64) -> Self {
        Self(Box::new(One {
            arithmetic,
            state: Default::default(),
            bits,
        }))
    }

    pub(crate) fn decide(&self, nanos: u64, ask: &Ask<'_>) -> Decision {
        let mut out = Decision::default();
        self.0.decide(nanos, ask, &mut out);
        out
    }

    pub(crate) fn take(&mut self, nanos: u64, ask: &Ask<'_>, tokens: u64) {
        if tokens > 0 {
            self.0.take(nanos, ask, tokens);
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
        self.0.adopt(nanos, ask)
    }

    pub(crate) fn settle(&mut self, nanos: u64, delta: i64) -> bool {
        self.settle_by(nanos, &super::ask(0), delta)
    }

    pub(crate) fn settle_by(&mut self, nanos: u64, ask: &Ask<'_>, delta: i64) -> bool {
        self.0.settle(nanos, ask, delta)
    }

    pub(crate) fn pressure(&self, nanos: u64) -> u64 {
        self.0.pressure(nanos)
    }
}
