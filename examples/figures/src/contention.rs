//! Clients that contend for one row, as in "Exponential Backoff And Jitter" (AWS Architecture
//! Blog, 2015): the retry layer's strategies against optimistic concurrency control.

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

/// Many trials of one strategy with so many clients.
#[derive(Clone, Copy, Debug)]
struct Setting {
    clients: u32,
    strategy: Strategy,
    trials: u32,
}

/// As in the article, from 10 clients to 190; the more there are, the less trials differ.
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

    /// About in proportion to the time that a trial takes.
    fn work(self) -> u64 {
        u64::from(self.clients).pow(2)
    }
}

fn report(cells: &[Cell]) -> Result<Report, BoxError> {
    Report::new(
        "contention: clients that write one row at once, and the article's simulator beside ours",
        cells,
        table::table(cells),
        plots::plots(cells),
    )
}
