use std::time::Duration;

#[cfg(not(all(test, tower_dist_ratelimit_loom)))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

#[cfg(all(test, tower_dist_ratelimit_loom))]
use ::loom::sync::atomic::AtomicU64;

use super::{
    circuit::{Circuit, TAG},
    pauses::Pauses,
};

/// The circuit that all requests of a layer share: one number, changed by compare-and-swap.
///
/// Relaxed throughout: there is no other memory that the number says something about.
#[derive(Debug)]
pub(super) struct Breaker {
    bits: AtomicU64,
    pauses: Pauses,
    seed: u64,
}

/// The leave to ask the store, and what its answer then is to the circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Nothing has failed lately, and nothing is counted.
    Quiet,
    /// The circuit is closed.
    Closed,
    /// The circuit has closed lately. The request is charged to this process's share, too.
    Shared,
    /// It is open, and this is the probe; with the circuit as the probe left it.
    Probe(u64),
}

/// What an answer has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Opened,
    Closed,
}

impl Breaker {
    pub(super) fn new(deadline: Duration, seed: u64) -> Self {
        Self {
            bits: AtomicU64::new(Circuit::QUIET),
            pauses: Pauses::new(deadline),
            seed,
        }
    }

    #[inline]
    pub(super) fn leave_if_closed(&self) -> Option<Leave> {
        match self.bits.load(Relaxed) {
            Circuit::QUIET => Some(Leave::Quiet),
            bits => (bits >> TAG == 0).then_some(Leave::Closed),
        }
    }

    /// Leave to ask the store; or none, and how long it is until somebody gets it.
    pub(super) fn leave(&self, now: impl Fn() -> Duration) -> Result<Leave, Duration> {
        let mut bits = self.bits.load(Relaxed);
        loop {
            let circuit = match Circuit::unpack(bits) {
                _ if bits == Circuit::QUIET => return Ok(Leave::Quiet),
                Circuit::Closed(_) => return Ok(Leave::Closed),
                open => open,
            };
            let now = now();
            let Some(probed) = circuit.probe(now, self.pauses, self.noise(now)) else {
                return Err(circuit.shut_for(now).unwrap_or_default());
            };
            match self.swap(bits, probed.pack()) {
                Ok(()) => return Ok(Leave::Probe(probed.pack())),
                Err(changed) => bits = changed,
            }
        }
    }

    /// The store has decided. `settled` is whether nobody counts what was good as long as nothing fails.
    pub(super) fn answered(&self, leave: Leave, now: Duration, settled: bool) -> Option<Change> {
        if let Leave::Probe(_) = leave {
            let before = self.change(|_| Circuit::QUIET);
            return (before >> TAG == 1).then_some(Change::Closed);
        }
        self.change(|bits| {
            let circuit = Circuit::unpack(bits);
            match circuit.count(false, now, self.pauses, 0) {
                Circuit::Closed(record) if settled && record.is_clean() => Circuit::QUIET,
                counted => counted.pack(),
            }
        });
        None
    }

    /// The store has not decided.
    pub(super) fn failed(&self, leave: Leave, now: Duration) -> Option<Change> {
        let noise = self.noise(now);
        if let Leave::Probe(bits) = leave {
            let failed = Circuit::unpack(bits).probe_failed(now, self.pauses, noise);
            // Else this probe is not the news any more.
            let _ = self.swap(bits, failed.pack());
            return None;
        }
        let count = |bits| {
            let circuit = Circuit::unpack(bits);
            circuit.count(true, now, self.pauses, noise).pack()
        };
        let before = self.change(count);
        (count(before) >> TAG > before >> TAG).then_some(Change::Opened)
    }

    /// The store was not needed to decide.
    pub(super) fn spared(&self, leave: Leave, now: Duration) {
        if let Leave::Probe(bits) = leave {
            let spared = Circuit::unpack(bits).probe_spared(now);
            let _ = self.swap(bits, spared.pack());
        }
    }

    /// How long the store is not asked; `None` while it is.
    pub(super) fn shut_for(&self, now: impl FnOnce() -> Duration) -> Option<Duration> {
        match Circuit::unpack(self.bits.load(Relaxed)) {
            Circuit::Closed(_) => None,
            open => open.shut_for(now()),
        }
    }

    /// What there was before the change.
    fn change(&self, to: impl Fn(u64) -> u64) -> u64 {
        let mut bits = self.bits.load(Relaxed);
        while let Err(changed) = self.swap(bits, to(bits)) {
            bits = changed;
        }
        bits
    }

    fn swap(&self, from: u64, to: u64) -> Result<(), u64> {
        if from == to {
            return Ok(());
        }
        let swapped = self.bits.compare_exchange(from, to, Relaxed, Relaxed);
        swapped.map(|_| ())
    }

    /// Another one with every instance and at every time (SplitMix64's finalizer). No random state, so nothing to share or to lock.
    fn noise(&self, now: Duration) -> u64 {
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mut bits = self.seed ^ nanos.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }
}

#[cfg(all(test, not(tower_dist_ratelimit_loom)))]
mod tests;

#[cfg(all(test, tower_dist_ratelimit_loom))]
mod loom;
