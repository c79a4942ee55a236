use std::time::Duration;

use super::{
    pauses::Pauses,
    record::{self, Record},
};

/// Whether the store is asked: a circuit breaker, as one number.
///
/// Pure: the time (since some beginning) and the noise are arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Circuit {
    /// It is.
    Closed(Record),
    /// It is left alone, but for one probe at a time.
    Open {
        /// How many there were, up to [`MOST_PROBES`].
        probes: u8,
        /// When the next one may go, in microseconds.
        due: u64,
    },
}

/// The bit that says which of the two it is.
pub(super) const TAG: u32 = 63;

const _: () = assert!(record::BITS == TAG);

const DUE_BITS: u32 = 57;
const MAX_DUE: u64 = (1 << DUE_BITS) - 1;
const MOST_PROBES: u8 = 63;

impl Circuit {
    /// Nothing has happened yet. It packs to zero.
    pub(super) const QUIET: u64 = 0;

    /// After a decision by the store, or a failure to make one, that was no probe.
    pub(super) fn count(self, failed: bool, now: Duration, pauses: Pauses, noise: u64) -> Self {
        match self {
            Self::Closed(record) => {
                let record = record.count(failed, now);
                if failed && record.is_bad() {
                    let due = later(now, pauses.after(0, noise));
                    return Self::Open { probes: 0, due };
                }
                Self::Closed(record)
            }
            // It was asked when the circuit was closed, and says nothing new.
            Self::Open { .. } => self,
        }
    }

    /// With a probe on its way, if one may go now. The next one may go when this one must have ended and a pause is
    /// over: so there is never a second one, and one that is dropped half-way blocks nobody.
    pub(super) fn probe(self, now: Duration, pauses: Pauses, noise: u64) -> Option<Self> {
        match self {
            Self::Open { probes, due } if micros(now) >= due => {
                let probes = (probes + 1).min(MOST_PROBES);
                let wait = pauses.deadline() + pauses.after(probes, noise);
                let due = later(now, wait);
                Some(Self::Open { probes, due })
            }
            _ => None,
        }
    }

    /// After its probe has failed. The pause begins, unless it has.
    pub(super) fn probe_failed(self, now: Duration, pauses: Pauses, noise: u64) -> Self {
        match self {
            Self::Open { probes, due } => Self::Open {
                probes,
                due: due.min(later(now, pauses.after(probes, noise))),
            },
            Self::Closed(_) => self,
        }
    }

    /// After its probe turned out to be none: the next request is one.
    pub(super) fn probe_spared(self, now: Duration) -> Self {
        match self {
            Self::Open { probes, .. } => Self::Open {
                probes: probes.saturating_sub(1),
                due: micros(now),
            },
            Self::Closed(_) => self,
        }
    }

    /// Closed, or how long until the store is asked again.
    pub(super) fn shut_for(self, now: Duration) -> Option<Duration> {
        match self {
            Self::Closed(_) => None,
            Self::Open { due, .. } => Some(Duration::from_micros(due).saturating_sub(now)),
        }
    }

    pub(super) fn pack(self) -> u64 {
        match self {
            Self::Closed(record) => record.pack(),
            Self::Open { probes, due } => 1 << TAG | u64::from(probes) << DUE_BITS | due,
        }
    }

    pub(super) fn unpack(bits: u64) -> Self {
        if bits >> TAG == 0 {
            return Self::Closed(Record::unpack(bits));
        }
        Self::Open {
            probes: u8::try_from(bits >> DUE_BITS & u64::from(MOST_PROBES)).unwrap_or(MOST_PROBES),
            due: bits & MAX_DUE,
        }
    }
}

/// Rounded down, as what has passed is.
fn micros(now: Duration) -> u64 {
    u64::try_from(now.as_micros()).map_or(MAX_DUE, |now| now.min(MAX_DUE))
}

/// Rounded up, as waits are.
fn later(now: Duration, wait: Duration) -> u64 {
    let micros = now.saturating_add(wait).as_nanos().div_ceil(1000);
    u64::try_from(micros).map_or(MAX_DUE, |due| due.min(MAX_DUE))
}

#[cfg(test)]
mod tests;
