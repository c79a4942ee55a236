//! A query that waits for all of 1,000 keys, so that one slow key makes it slow ("The Tail at Scale", Dean and Barroso
//! 2013).

mod key;
mod mode;
mod plots;
mod row;
mod table;
#[cfg(test)]
mod tests;
mod trial;

use indicatif::ProgressBar;
use tower::BoxError;

use self::mode::Mode;
use self::row::Row;
use self::trial::{Trial, trial};
use crate::report::Report;
use crate::{parallel, seeds};

/// Queries of one mode, split into pieces.
#[derive(Clone, Copy, Debug)]
struct Setting {
    mode: Mode,
    pieces: u32,
    queries_per_piece: u32,
}

/// A learned delay needs every key to go through the layer, so that mode has fewer queries. Each piece learns
/// separately.
const SETTINGS: [Setting; 3] = [
    Setting {
        mode: Mode::None,
        pieces: 80,
        queries_per_piece: 500,
    },
    Setting {
        mode: Mode::Fixed,
        pieces: 80,
        queries_per_piece: 500,
    },
    Setting {
        mode: Mode::Percentile,
        pieces: 4,
        queries_per_piece: 1250,
    },
];

pub(crate) fn run(seed: u64, progress: &ProgressBar) -> Result<Report, BoxError> {
    progress.set_message("tail-at-scale");
    report(&rows(&SETTINGS, seed, progress)?)
}

fn rows(settings: &[Setting], seed: u64, progress: &ProgressBar) -> Result<Vec<Row>, BoxError> {
    let pieces: Vec<(Setting, u32)> = settings
        .iter()
        .flat_map(|setting| (0..setting.pieces).map(|piece| (*setting, piece)))
        .collect();
    progress.set_length(pieces.iter().map(|(setting, _)| setting.work()).sum());
    let trials = parallel::map(&pieces, |(setting, piece)| {
        let coordinates = |stream| [setting.mode as u64, (*piece).into(), stream];
        let random = [0, 1].map(|stream| seeds::generator(seed, coordinates(stream)));
        let trial = trial(setting.mode, setting.queries_per_piece, random);
        progress.inc(setting.work());
        trial
    });
    let mut trials = trials.into_iter();
    settings
        .iter()
        .map(|setting| {
            let trials = trials.by_ref().take(setting.pieces as usize);
            let trials: Vec<Trial> = trials.collect::<Result<_, _>>()?;
            Ok(Row::new(setting.mode, trials))
        })
        .collect()
}

impl Setting {
    /// Number of keys in a piece that go through the layer.
    fn work(self) -> u64 {
        let keys = match self.mode {
            Mode::None | Mode::Fixed => 30,
            Mode::Percentile => 1000,
        };
        u64::from(self.queries_per_piece) * keys
    }
}

fn report(rows: &[Row]) -> Result<Report, BoxError> {
    Report::new(
        "tail-at-scale: a query waits for all of 1,000 keys",
        rows,
        table::table(rows),
        vec![plots::tail(rows)],
    )
}
