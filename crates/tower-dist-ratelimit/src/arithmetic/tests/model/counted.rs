use crate::{Algorithm, Quota};

/// Windows of any kind: every request, and the share of it that counts at a time.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    algorithm: Algorithm,
    quota: Quota,
    /// The latest request is the last.
    taken: Vec<Taken>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    nanos: u64,
    tokens: u64,
    /// The beginning of the window, for [`Algorithm::FixedWindowFromFirstRequest`].
    began: u64,
}

impl Counted {
    pub(super) fn new(algorithm: Algorithm, quota: Quota) -> Self {
        Self {
            algorithm,
            quota,
            taken: Vec::new(),
        }
    }

    pub(super) fn limited_to(self, quota: Quota) -> Self {
        Self { quota, ..self }
    }

    fn window(&self) -> u64 {
        u64::try_from(self.quota.window().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the share of a request's tokens that counts, as a fraction.
    fn share(&self, taken: &Taken, nanos: u64) -> (u64, u64) {
        let all = |counts: bool| (u64::from(counts), 1);
        let window = self.window();
        match self.algorithm {
            Algorithm::FixedWindow { .. } => all(taken.nanos / window == nanos / window),
            Algorithm::FixedWindowFromFirstRequest => all(nanos - taken.began < window),
            Algorithm::SlidingWindowLog => all(nanos - taken.nanos < window),
            Algorithm::SlidingWindowStrict { count } => {
                let length = window.div_ceil(count.into());
                all(nanos / length - taken.nanos / length <= u64::from(count))
            }
            Algorithm::SlidingWindowBuckets { count } => {
                Self::weighted(taken, nanos, window, count.into())
            }
            _ => Self::weighted(taken, nanos, window, 1),
        }
    }

    fn weighted(taken: &Taken, nanos: u64, window: u64, count: u64) -> (u64, u64) {
        let length = window.div_ceil(count);
        let age = nanos / length - taken.nanos / length;
        if age == count {
            (length - nanos % length, length)
        } else {
            (u64::from(age < count), 1)
        }
    }

    /// Returns the used tokens, rounded up once over all requests.
    fn used(&self, nanos: u64) -> u128 {
        let (mut whole, mut parts, mut of) = (0, 0, 1);
        for taken in &self.taken {
            let (share, all) = self.share(taken, nanos);
            if all == 1 {
                whole += u128::from(taken.tokens) * u128::from(share);
            } else {
                parts += u128::from(taken.tokens) * u128::from(share);
                of = u128::from(all);
            }
        }
        whole + parts.div_ceil(of)
    }

    pub(super) fn free(&self, nanos: u64) -> u64 {
        let used = u64::try_from(self.used(nanos)).unwrap_or(u64::MAX);
        self.quota.limit().saturating_sub(used)
    }

    pub(super) fn is_unused(&self, nanos: u64) -> bool {
        self.used(nanos) == 0
    }

    pub(super) fn take(&mut self, nanos: u64, tokens: u64) {
        if tokens == 0 {
            return;
        }
        let began = match self.taken.last() {
            Some(last) if nanos - last.began < self.window() => last.began,
            _ => nanos,
        };
        self.taken.push(Taken {
            nanos,
            tokens,
            began,
        });
    }

    /// Refunds the latest tokens first.
    pub(super) fn settle(&mut self, nanos: u64, delta: i64) {
        if delta > 0 {
            return self.take(nanos, delta.unsigned_abs());
        }
        let mut refund = delta.unsigned_abs();
        while refund > 0
            && let Some(last) = self.taken.last().copied()
            && self.share(&last, nanos).0 > 0
        {
            let back = refund.min(last.tokens);
            refund -= back;
            self.taken.pop();
            if back < last.tokens {
                let tokens = last.tokens - back;
                self.taken.push(Taken { tokens, ..last });
            }
        }
    }
}
