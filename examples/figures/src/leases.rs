//! What leases save, and what they can let through too much: 20 instances of a service with one token bucket, which is some
//! way off.

mod fleet;
mod mode;
mod plots;
mod row;
mod store;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use indicatif::ProgressBar;
use tower::BoxError;

use self::mode::Mode;
use self::row::Row;
use crate::parallel;
use crate::report::Report;

/// Instances that share the bucket.
const INSTANCES: u32 = 20;

/// Tokens per second, and the bucket's size.
const RATE: u32 = 1000;
const BURST: u32 = 100;

const MINUTE: Duration = Duration::from_secs(60);

/// To the store and back.
const ROUND_TRIP: Duration = Duration::from_millis(2);

/// Of the plots.
const LEASES_MS: [u64; 6] = [20, 50, 100, 200, 500, 1000];

const LOADS: [f64; 2] = [0.8, 3.0];

pub(crate) fn run(seed: u64, progress: &ProgressBar) -> Result<Report, BoxError> {
    progress.set_message("leases");
    report(&rows(MINUTE, seed, progress)?)
}

/// Each way to share the bucket, under each load, for so long.
fn rows(time: Duration, seed: u64, progress: &ProgressBar) -> Result<Vec<Row>, BoxError> {
    let modes = std::iter::once(Mode::Exact)
        .chain(LEASES_MS.map(Mode::Lease))
        .chain([Mode::Async(100), Mode::Async(1000)]);
    let pieces: Vec<(Mode, f64)> = modes
        .flat_map(|mode| LOADS.map(|load| (mode, load)))
        .collect();
    progress.set_length(pieces.len() as u64);
    let rows = parallel::map(&pieces, |(mode, load)| {
        let row = Row::run(*mode, *load, time, seed);
        progress.inc(1);
        row
    });
    rows.into_iter().collect()
}

fn report(rows: &[Row]) -> Result<Report, BoxError> {
    Report::new(
        "leases: 20 instances on one token bucket of 1000/s, burst 100, two milliseconds away",
        rows,
        table::table(rows),
        plots::plots(rows),
    )
}
