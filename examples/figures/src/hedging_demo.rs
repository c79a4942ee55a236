//! A service that is slow for 3 % of the attempts ("hedged requests in Go"): without hedges, with hedges after 21 and
//! 42 ms, with three concurrent attempts, and with a learned delay.

mod mode;
mod plots;
mod row;
mod server;
mod table;
#[cfg(test)]
mod tests;

use indicatif::ProgressBar;
use tower::BoxError;

use self::mode::Mode;
use self::row::Row;
use crate::report::Report;
use crate::{parallel, seeds};

const REQUESTS: u32 = 100_000;

pub(crate) fn run(seed: u64, progress: &ProgressBar) -> Result<Report, BoxError> {
    progress.set_message("hedging-demo");
    report(&rows(REQUESTS, seed, progress)?)
}

fn rows(requests: u32, seed: u64, progress: &ProgressBar) -> Result<Vec<Row>, BoxError> {
    progress.set_length(Mode::ALL.len() as u64);
    let rows = parallel::map(&Mode::ALL, |mode| {
        let row = server::run(
            *mode,
            requests,
            seeds::generator(seed, [*mode as u64, 0, 0]),
        );
        progress.inc(1);
        row
    });
    rows.into_iter().collect()
}

fn report(rows: &[Row]) -> Result<Report, BoxError> {
    Report::new(
        "hedging-demo: 97 % of the attempts take 15 ms, 3 % take 115 ms",
        rows,
        table::table(rows),
        vec![plots::tail(rows)],
    )
}
