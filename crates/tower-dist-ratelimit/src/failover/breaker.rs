use std::{
    hash::{DefaultHasher, Hasher},
    mem,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{circuit::Circuit, pauses::Pauses};

/// The circuit breaker that all requests of a limit share.
#[derive(Debug)]
pub(super) struct Breaker {
    state: Mutex<BreakerState>,
    /// A summary of the state: [`QUIET`], [`OPEN`], or [`CLOSED`] plus the number of consecutive failures. While the
    /// circuit is closed, requests usually get their permission from this summary without a lock. A request that reads
    /// an old value is usually decided as if it had come a moment earlier.
    phase: AtomicU8,
    pub(super) pauses: Pauses,
    seed: u64,
}

#[derive(Debug, Default)]
struct BreakerState {
    circuit: Circuit,
    /// The number of the latest probe. It also changes when the circuit opens, so that the failure of an earlier probe
    /// is ignored.
    probe: u64,
}

/// The circuit is closed, and no recent results are recorded.
const QUIET: u8 = 0;
const OPEN: u8 = 1;
const CLOSED: u8 = 2;

/// The permission to query the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The circuit is closed, and no recent results are recorded. An immediate decision of the backend is then not
    /// counted.
    Quiet,
    /// The circuit is closed, after this number of consecutive failures.
    Closed(u8),
    /// As `Closed`, but the circuit closed recently. The request is charged to this process's share, too.
    Shared(u8),
    /// The circuit is open, and the request is the probe with this number.
    Probe(u64),
}

impl Access {
    /// Returns the number of consecutive failures when the request was sent. Returns 0 for a probe.
    pub(crate) fn row(self) -> u8 {
        match self {
            Self::Closed(row) | Self::Shared(row) => row,
            Self::Quiet | Self::Probe(_) => 0,
        }
    }
}

impl Breaker {
    pub(super) fn new(timeout: Duration, seed: u64) -> Self {
        Self {
            state: Mutex::default(),
            phase: AtomicU8::new(QUIET),
            pauses: Pauses { timeout },
            seed,
        }
    }

    #[inline]
    pub(super) fn permit_if_closed(&self) -> Option<Access> {
        match self.phase.load(Relaxed) {
            QUIET => Some(Access::Quiet),
            OPEN => None,
            closed => Some(Access::Closed(closed - CLOSED)),
        }
    }

    /// Returns permission to query the backend, or the time until the next probe.
    pub(super) fn permit(&self, now: impl Fn() -> Duration) -> Result<Access, Duration> {
        if let Some(permit) = self.permit_if_closed() {
            return Ok(permit);
        }
        let now = now();
        self.change(|state| {
            let Some(open_for) = state.circuit.open_for(now) else {
                return Ok(Access::Closed(state.circuit.row()));
            };
            let probed = state.circuit.probe(now, self.pauses, self.noise(now));
            state.circuit = probed.ok_or(open_for)?;
            state.probe += 1;
            Ok(Access::Probe(state.probe))
        })
    }

    /// Records a decision of the backend. With `forget`, clears the recent results if there is no failure among them.
    /// Returns whether the circuit has closed.
    pub(super) fn answered(&self, permit: Access, now: Duration, forget: bool) -> bool {
        self.change(|state| {
            if let Access::Probe(_) = permit {
                return mem::take(&mut state.circuit).is_open();
            }
            state.circuit.count(None, now, self.pauses, 0);
            if forget && state.circuit.is_clean() {
                state.circuit = Circuit::default();
            }
            false
        })
    }

    /// Records a failure of the backend. Returns whether the circuit has opened.
    pub(super) fn failed(&self, permit: Access, now: Duration) -> bool {
        let noise = self.noise(now);
        self.change(|state| {
            if let Access::Probe(number) = permit {
                if number == state.probe {
                    state.circuit.probe_failed(now, self.pauses, noise);
                }
                return false;
            }
            let was_open = state.circuit.is_open();
            let row = Some(permit.row());
            state.circuit.count(row, now, self.pauses, noise);
            let opened = state.circuit.is_open() && !was_open;
            state.probe += u64::from(opened);
            opened
        })
    }

    /// Records that the request was decided without the backend.
    pub(super) fn release(&self, permit: Access, now: Duration) {
        // A request that is no probe has nothing to release, and takes no lock.
        if let Access::Probe(number) = permit {
            self.change(|state| {
                if number == state.probe {
                    state.circuit.probe_spared(now);
                }
            });
        }
    }

    /// Returns the time until the next probe is due, or `None` while the circuit is closed.
    pub(super) fn open_for(&self, now: impl FnOnce() -> Duration) -> Option<Duration> {
        if self.permit_if_closed().is_some() {
            return None;
        }
        self.change(|state| state.circuit.open_for(now()))
    }

    fn change<T>(&self, change: impl FnOnce(&mut BreakerState) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        let phase = match state.circuit {
            Circuit::Open { .. } => OPEN,
            circuit if circuit == Circuit::default() => QUIET,
            circuit => CLOSED + circuit.row(),
        };
        self.phase.store(phase, Relaxed);
        result
    }

    /// Returns pseudo-random bits that usually differ between instances and between times.
    fn noise(&self, now: Duration) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher.write_u128(now.as_nanos());
        hasher.finish()
    }
}

#[cfg(test)]
mod tests;
