use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use smallvec::{SmallVec, smallvec};

use crate::Decision;

/// The decisions on one request, one per policy that was asked, in the order of asking.
///
/// A slice in all but name. Two decisions are kept inline, so one or two policies need no allocation.
///
/// ```
/// use tower_dist_ratelimit::{Decision, Decisions};
///
/// let mut decisions = Decisions::refused(1);
/// assert!(!decisions[0].allowed);
/// decisions[0] = Decision::allow(1, 10, 9, std::time::Duration::from_secs(1));
/// assert!(decisions.iter().all(|decision| decision.allowed));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decisions(SmallVec<[Decision; 2]>);

impl Decisions {
    /// As many refusals as there are policies to ask, for a backend to write its decisions over.
    #[must_use]
    pub fn refused(len: usize) -> Self {
        const INLINE: [Decision; 2] = [Decision::refuse(0, 0, None, Duration::ZERO); 2];
        // By copying a constant where it fits: filling one by one takes longer than deciding.
        Self(if len <= 2 {
            SmallVec::from_buf_and_len(INLINE, len)
        } else {
            smallvec![INLINE[0]; len]
        })
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
