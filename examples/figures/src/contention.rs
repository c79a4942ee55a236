//! Clients contend for one row with optimistic concurrency control, and retry with the strategies of the retry layer
//! ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015).

mod cell;
mod network;
mod plots;
mod published;
mod row;
mod server;
mod strategy;
mod table;
#[cfg(test)]
mod tests;
mod trial;

use indicatif::ProgressBar;
use tower::BoxError;

use self::cell::Cell;
use self::strategy::Strategy;
use self::trial::Trial;
use crate::report::Report;
use crate::{parallel, seeds};

/// Trials of one strategy with one number of clients.
#[derive(Clone, Copy, Debug)]
struct Setting {
    clients: u32,
    strategy: Strategy,
    trials: u32,
}

/// The article's range, 10 to 190 clients. Trials with more clients differ less, so fewer are needed.
fn settings() -> Vec<Setting> {
    let clients = (10..=190).step_by(10);
    clients
        .flat_map(|clients| {
            Strategy::ALL.map(|strategy| Setting {
                clients,
                strategy,
                trials: if clients > 100 { 30 } else { 100 },
            })
        })
        .collect()
}

pub(crate) fn run(seed: u64, progress: &ProgressBar) -> Result<Report, BoxError> {
    progress.set_message("contention");
    report(&cells(&settings(), seed, progress)?)
}

fn cells(settings: &[Setting], seed: u64, progress: &ProgressBar) -> Result<Vec<Cell>, BoxError> {
    let trials: Vec<(Setting, u32)> = settings
        .iter()
        .flat_map(|setting| (0..setting.trials).map(|number| (*setting, number)))
        .collect();
    progress.set_length(trials.iter().map(|(setting, _)| setting.work()).sum());
    let results = parallel::map(&trials, |(setting, number)| {
        let trial = setting.trial(*number, seed);
        progress.inc(setting.work());
        trial
    });
    let mut results = results.into_iter();
    settings
        .iter()
        .map(|setting| {
            let trials = results.by_ref().take(setting.trials as usize);
            let trials: Vec<Trial> = trials.collect::<Result<_, _>>()?;
            Ok(Cell::new(setting.clients, setting.strategy, &trials))
        })
        .collect()
}

impl Setting {
    fn trial(self, number: u32, seed: u64) -> Result<Trial, BoxError> {
        let piece = [self.clients.into(), self.strategy as u64, number.into()];
        Trial::run(self.clients, self.strategy, seeds::generator(seed, piece))
    }

    /// Roughly proportional to the duration of a trial.
    fn work(self) -> u64 {
        u64::from(self.clients).pow(2)
    }
}

fn report(cells: &[Cell]) -> Result<Report, BoxError> {
    Report::new(
        "contention: clients that write one row concurrently, compared with the published simulator",
        cells,
        table::table(cells),
        plots::plots(cells),
    )
}
