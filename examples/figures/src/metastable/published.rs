//! Results of an independent simulation of the same server.

use super::LOADS;
use super::mode::Mode;

/// Attempts per second a minute after the outage, without a budget: the least and the most of the three loads. No call succeeds.
pub(crate) const STORM: [f64; 2] = [2200.0, 2700.0];

/// Seconds from the end of the outage to the recovery, if the simulation has this mode and load; the inner `None` means never.
pub(crate) fn recovery(mode: Mode, load: f64) -> Option<Option<usize>> {
    let seconds = match mode {
        Mode::None => [8, 11, 20].map(Some),
        Mode::NoBudget => [None; 3],
        Mode::Budget => [8, 11, 22].map(Some),
        Mode::Hedge | Mode::TowerBudget => return None,
    };
    let same = |other: &f64| (other - load).abs() < 1e-9;
    let load = LOADS.iter().position(same)?;
    seconds.get(load).copied()
}
