//! Cost and precision of leases: instances of a service share one token bucket in a remote backend.

mod fleet;
mod mode;
mod plots;
mod row;
mod store;
mod table;
#[cfg(test)]
mod tests;

use indicatif::ProgressBar;
use tower::BoxError;

use self::fleet::Fleet;
use self::mode::Mode;
use self::row::Row;
use crate::parallel;
use crate::report::Report;

/// Round-trip times to the backend from its own region, across a continent and across an ocean, in milliseconds.
const REGIONS_MS: [u64; 3] = [1, 40, 80];

const SMALL: Fleet = Fleet {
    instances: 20,
    round_trips_ms: &[2],
    seconds: 60,
};
const MEDIUM: Fleet = Fleet {
    instances: 100,
    round_trips_ms: &REGIONS_MS,
    seconds: 60,
};
const LARGE: Fleet = Fleet {
    instances: 1000,
    round_trips_ms: &REGIONS_MS,
    seconds: 15,
};

/// Lease times of the small fleet, in milliseconds.
const LEASES_MS: [u64; 6] = [20, 50, 100, 200, 500, 1000];
/// Lease times of fleets in several regions, in milliseconds. Shorter ones are too close to a round trip.
const LONG_LEASES_MS: [u64; 3] = [200, 500, 1000];

const LOADS: [f64; 2] = [0.8, 3.0];

/// One fleet with one mode at one load.
type Setting = (Fleet, Mode, f64);

pub(crate) fn run(seed: u64, progress: &ProgressBar) -> Result<Report, BoxError> {
    progress.set_message("leases");
    report(&rows(&settings(), seed, progress)?)
}

fn settings() -> Vec<Setting> {
    let asynchronous = [100, 1000].map(Mode::Async).to_vec();
    let fleets = [
        (SMALL, LEASES_MS.to_vec(), asynchronous),
        (MEDIUM, LONG_LEASES_MS.to_vec(), Vec::new()),
        (LARGE, LONG_LEASES_MS.to_vec(), Vec::new()),
    ];
    let modes = fleets.into_iter().flat_map(|(fleet, leases, others)| {
        let leases = leases.into_iter().map(Mode::Lease);
        let modes = std::iter::once(Mode::Exact).chain(leases).chain(others);
        modes.map(move |mode| (fleet, mode))
    });
    modes
        .flat_map(|(fleet, mode)| LOADS.map(|load| (fleet, mode, load)))
        .collect()
}

fn rows(settings: &[Setting], seed: u64, progress: &ProgressBar) -> Result<Vec<Row>, BoxError> {
    let work = |(fleet, _, load): &Setting| fleet.work(*load);
    progress.set_length(settings.iter().map(work).sum());
    let rows = parallel::map(settings, |setting| {
        let (fleet, mode, load) = *setting;
        let row = Row::run(fleet, mode, load, seed);
        progress.inc(work(setting));
        row
    });
    rows.into_iter().collect()
}

fn report(rows: &[Row]) -> Result<Report, BoxError> {
    Report::new(
        "leases: a fleet on one token bucket of 50/s per instance; 20 instances 2 ms from the backend, larger fleets in three regions",
        rows,
        table::table(rows),
        plots::plots(rows),
    )
}
