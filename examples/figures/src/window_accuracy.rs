//! The count of each rate limit algorithm and the true count of the sliding window, over an hour of traffic
//! ("Distributed rate limiting algorithms", Criteo Engineering, 2022).

mod algorithm;
mod limited;
mod plots;
mod published;
mod row;
mod table;
#[cfg(test)]
mod tests;
mod trace;
mod traffic;

use std::time::Duration;

use indicatif::ProgressBar;
use tower::BoxError;

use self::algorithm::Algorithm;
use self::row::Row;
use self::trace::Trace;
use self::traffic::Traffic;
use crate::parallel;
use crate::report::Report;

/// The article's limit, 100 calls per minute.
const LIMIT: u64 = 100;
const WINDOW: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Duration of the plots.
const TRACE: Duration = Duration::from_secs(480);

pub(crate) fn run(seed: u64, progress: &ProgressBar) -> Result<Report, BoxError> {
    progress.set_message("window-accuracy");
    let rows = rows(HOUR, seed, progress)?;
    let traces = Algorithm::IN_THE_ARTICLE
        .iter()
        .map(|algorithm| Trace::run(*algorithm, TRACE, seed))
        .collect::<Result<Vec<_>, _>>()?;
    report(&rows, &traces)
}

/// Runs each algorithm with each kind of traffic for `time`.
fn rows(time: Duration, seed: u64, progress: &ProgressBar) -> Result<Vec<Row>, BoxError> {
    let pieces: Vec<(Algorithm, Traffic)> = Traffic::ALL
        .into_iter()
        .flat_map(|traffic| Algorithm::ALL.map(|algorithm| (algorithm, traffic)))
        .collect();
    progress.set_length(pieces.len() as u64);
    let rows = parallel::map(&pieces, |(algorithm, traffic)| {
        let row = Row::run(*algorithm, *traffic, time, seed);
        progress.inc(1);
        row
    });
    rows.into_iter().collect()
}

fn report(rows: &[Row], traces: &[Trace]) -> Result<Report, BoxError> {
    Report::new(
        "window-accuracy: at most 100 requests per minute, by each algorithm, compared with published bounds",
        rows,
        table::table(rows),
        plots::plots(traces),
    )
}
