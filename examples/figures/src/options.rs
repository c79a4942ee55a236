//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use indicatif::ProgressBar;
use tower::BoxError;

use crate::report::Report;
use crate::{contention, hedging_demo, leases, metastable, tail_at_scale, window_accuracy};

/// Reproduces published results with the shipping layers and simulated servers, in virtual time.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Options {
    /// The figure to run.
    #[arg(value_enum)]
    pub(crate) figure: Selection,
    /// Print one JSON array instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also draw the graphs, as SVG files in this directory, which is created if it is missing.
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Also draw the graphs, as PNG files in this directory, which is created if it is missing.
    #[arg(long, value_name = "DIR")]
    pub(crate) png: Option<PathBuf>,
    /// Seed of all random numbers; the same seed gives the same output.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Selection {
    /// All figures in turn.
    All,
    /// Clients that contend for one row ("Exponential Backoff And Jitter", AWS 2015).
    Contention,
    /// Hedging a service that is slow for 3 % of the requests ("hedged requests in Go").
    HedgingDemo,
    /// Fleets of 20, 100 and 1,000 instances that share one bucket, with and without leases.
    Leases,
    /// Recovery from an outage, with and without retry budgets ("Metastable Failures in Distributed Systems", HotOS
    /// 2021).
    Metastable,
    /// Hedging a fan-out over 1,000 keys ("The Tail at Scale", Dean and Barroso 2013).
    TailAtScale,
    /// The count of each rate limit algorithm and the true count ("Distributed rate limiting algorithms", Criteo).
    WindowAccuracy,
}

/// Runs one figure with a seed, and reports its progress.
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
    fn all_selects_every_figure() {
        let single = Selection::value_variants().len() - 1;
        assert_eq!(Selection::All.figures().len(), single);
    }
}
