//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use indicatif::ProgressBar;
use tower::BoxError;

use crate::report::Report;
use crate::{contention, hedging_demo, leases, metastable, tail_at_scale, window_accuracy};

/// Makes published results again: the crates' own layers against simulated servers, in virtual time.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Options {
    /// Which one.
    #[arg(value_enum)]
    pub(crate) figure: Selection,
    /// Print one JSON array instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also draw the published graphs, as SVG files in this directory, which is made if it is missing.
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Seed of all that is left to chance; the same seed gives the same output.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Selection {
    /// All of them, one after another.
    All,
    /// Clients that contend for one row ("Exponential Backoff And Jitter", AWS 2015).
    Contention,
    /// Hedging a service with two modes ("hedged requests in Go").
    HedgingDemo,
    /// A fleet that shares one bucket by leases.
    Leases,
    /// Recovery from an outage, with and without retry budgets ("Metastable Failures in Distributed Systems", HotOS 2021).
    Metastable,
    /// Hedging a fan-out over 1,000 keys ("The Tail at Scale", Dean and Barroso 2013).
    TailAtScale,
    /// What is in a window and what each algorithm believes to be ("Distributed rate limiting algorithms", Criteo).
    WindowAccuracy,
}

/// Makes one figure from a seed, and says how far it is.
pub(crate) type Figure = fn(u64, &ProgressBar) -> Result<Report, BoxError>;

impl Selection {
    pub(crate) fn figures(self) -> &'static [Figure] {
        match self {
            Self::All => &[
                contention::run,
                hedging_demo::run,
                leases::run,
                metastable::run,
                tail_at_scale::run,
                window_accuracy::run,
            ],
            Self::Contention => &[contention::run],
            Self::HedgingDemo => &[hedging_demo::run],
            Self::Leases => &[leases::run],
            Self::Metastable => &[metastable::run],
            Self::TailAtScale => &[tail_at_scale::run],
            Self::WindowAccuracy => &[window_accuracy::run],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Options::command().debug_assert();
    }

    #[test]
    fn all_is_every_one() {
        let single = Selection::value_variants().len() - 1;
        assert_eq!(Selection::All.figures().len(), single);
    }
}
