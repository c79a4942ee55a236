use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use smallvec::SmallVec;

use crate::Decision;

/// The decisions on one request: one per policy that decided, in the order of their charges.
///
/// Dereferences to a slice. Up to four decisions are stored inline, without an allocation.
///
/// ```
/// use tower_dist_ratelimit::{Decision, Decisions};
///
/// let mut decisions = Decisions::rejected(1);
/// assert!(!decisions[0].allowed);
/// decisions[0] = Decision::allow(1, 10, 9, std::time::Duration::from_secs(1));
/// assert!(decisions.iter().all(|decision| decision.allowed));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions(SmallVec<[Decision; 4]>);

impl Decisions {
    /// Returns `len` rejections. A backend can overwrite them with its decisions.
    #[must_use]
    pub fn rejected(len: usize) -> Self {
        let mut decisions = Self::default();
        decisions.reject(len);
        decisions
    }

    /// Replaces the decisions with `len` rejections, in place, because `Decisions` are large.
    #[inline]
    pub(crate) fn reject(&mut self, len: usize) {
        const REJECTED: Decision = Decision::reject(0, 0, None, Duration::ZERO);
        self.0.clear();
        // One decision is the common case. A push is faster than a loop.
        if len == 1 {
            self.0.push(REJECTED);
        } else {
            self.0.resize(len, REJECTED);
        }
    }
}

impl Deref for Decisions {
    type Target = [Decision];

    fn deref(&self) -> &[Decision] {
        &self.0
    }
}

impl DerefMut for Decisions {
    fn deref_mut(&mut self) -> &mut [Decision] {
        &mut self.0
    }
}

impl FromIterator<Decision> for Decisions {
    fn from_iter<I: IntoIterator<Item = Decision>>(decisions: I) -> Self {
        Self(decisions.into_iter().collect())
    }
}
