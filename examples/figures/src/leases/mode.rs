//! How instances share a bucket.

use std::time::Duration;

use tower_dist_ratelimit::Consistency;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    /// The backend decides each request.
    Exact,
    /// Leases of this length in milliseconds.
    Lease(u64),
    /// Eventual consistency with this interval in milliseconds.
    Async(u64),
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Lease(_) => "lease",
            Self::Async(_) => "async",
        }
    }

    /// Lease time or interval in milliseconds; zero for exact decisions.
    pub(crate) fn ms(self) -> u64 {
        match self {
            Self::Exact => 0,
            Self::Lease(ms) | Self::Async(ms) => ms,
        }
    }

    pub(crate) fn consistency(self) -> Consistency {
        let time = Duration::from_millis(self.ms());
        match self {
            Self::Exact => Consistency::Exact,
            Self::Lease(_) => Consistency::Leased(time),
            Self::Async(_) => Consistency::Eventual(time),
        }
    }
}
