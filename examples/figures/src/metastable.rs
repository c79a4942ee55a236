//! Recovery from an outage: a server stops for ten seconds while its clients retry ("Metastable Failures in Distributed
//! Systems", Bronson et al., HotOS 2021).

mod mode;
mod per_second;
mod plots;
mod published;
mod row;
mod scenario;
mod server;
mod table;
#[cfg(test)]
mod tests;
mod tower_policy;

use indicatif::ProgressBar;
use tower::BoxError;

use self::mode::Mode;
use self::row::Row;
use self::scenario::Scenario;
use crate::parallel;
use crate::report::Report;

/// Arrivals, as shares of the server's capacity.
const LOADS: [f64; 3] = [0.7, 0.8, 0.9];
/// The load of the plot.
const PLOTTED_LOAD: f64 = 0.8;

pub(crate) fn run(seed: u64, progress: &ProgressBar) -> Result<Report, BoxError> {
    progress.set_message("metastable");
    report(&rows(Scenario::PUBLISHED, &LOADS, seed, progress)?)
}

/// Runs every mode at each load.
fn rows(
    scenario: Scenario,
    loads: &[f64],
    seed: u64,
    progress: &ProgressBar,
) -> Result<Vec<Row>, BoxError> {
    let pieces: Vec<(f64, Mode)> = loads
        .iter()
        .flat_map(|load| Mode::ALL.map(|mode| (*load, mode)))
        .collect();
    progress.set_length(pieces.len() as u64);
    let rows = parallel::map(&pieces, |(load, mode)| {
        let row = Row::run(scenario, *load, *mode, seed);
        progress.inc(1);
        row
    });
    rows.into_iter().collect()
}

fn report(rows: &[Row]) -> Result<Report, BoxError> {
    Report::new(
        "metastable: a server of 1000 requests/s stops from 20 s to 30 s, attempts time out after 1 s",
        rows,
        table::table(rows),
        plots::plots(rows),
    )
}
