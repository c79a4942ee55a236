//! The work of one subject in its own process, for which this program starts itself.

use std::time::Duration;

use crate::measure::Case;
use crate::{callgrind, resident};

/// The number of calls before the measured ones.
const WARM_UP: u32 = 100;

/// Hidden options that describe the work.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Job {
    /// The case.
    #[arg(long, hide = true, requires_all = ["subject", "calls"])]
    pub(crate) case: Option<String>,
    /// The subject.
    #[arg(long, hide = true)]
    pub(crate) subject: Option<String>,
    /// The number of calls.
    #[arg(long, hide = true)]
    pub(crate) calls: Option<u32>,
    /// Print the increase of resident bytes and the duration in nanoseconds.
    #[arg(long, hide = true)]
    pub(crate) weigh: bool,
}

impl Job {
    /// Does the work and returns whether there was any.
    pub(crate) fn run(&self, cases: &mut [Case]) -> bool {
        let (Some(name), Some(subject), Some(calls)) = (&self.case, &self.subject, self.calls)
        else {
            return false;
        };
        let case = cases.iter_mut().find(|case| case.name == name.as_str());
        let subjects = case.into_iter().flat_map(|case| &mut case.subjects);
        for found in subjects.filter(|found| found.name == subject.as_str()) {
            if self.weigh {
                let mut took = Duration::ZERO;
                let grown = resident::growth(|| took = found.run(calls));
                println!("{grown} {}", took.as_nanos());
            } else {
                found.run(WARM_UP);
                callgrind::counted(|| {
                    found.run(calls);
                });
            }
        }
        true
    }
}
