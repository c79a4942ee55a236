use std::time::Duration;

use crate::Decision;

/// What comes of a charge by a policy's own quota: for most requests only what is not the same for all of them. Handing
/// up a whole [`Decision`] takes as long as making it.
pub(super) enum Charged {
    /// Allowed at once.
    Passed {
        remaining: u64,
        reset_after: Duration,
    },
    Else(Decision),
}

impl Charged {
    #[inline(always)]
    pub(super) fn of(decision: Decision) -> Self {
        if decision.allowed && decision.delay.is_zero() {
            let Decision {
                remaining,
                reset_after,
                ..
            } = decision;
            Self::Passed {
                remaining,
                reset_after,
            }
        } else {
            Self::Else(decision)
        }
    }

    /// Of a charge of `cost` tokens, where so many come in a window.
    #[inline(always)]
    pub(super) fn decision(self, cost: u64, limit: u64) -> Decision {
        match self {
            Self::Passed {
                remaining,
                reset_after,
            } => Decision::allow(cost, limit, remaining, reset_after),
            Self::Else(decision) => decision,
        }
    }
}
