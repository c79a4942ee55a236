use std::{fmt, time::Duration};

use tokio::time::Instant;
use tower_dist_ratelimit::Source;
use tracing::Level;

use super::{DEADLINE, load::Sample};

/// What happened under load while a fault lasted, and until decisions were the store's again.
pub(super) struct Report {
    pub(super) name: &'static str,
    /// When the fault was about to begin, and when it was there.
    pub(super) began: Instant,
    pub(super) begun: Instant,
    /// When it was about to end, and when it was over.
    pub(super) ending: Instant,
    pub(super) ended: Instant,
    pub(super) samples: Vec<Sample>,
    /// How late this thread has been for anything.
    pub(super) scheduling: Duration,
    /// What was counted before is gone.
    pub(super) forgot: bool,
    pub(super) lines: Vec<Level>,
}

impl Report {
    pub(super) const HEAD: &'static str = "\
| what happens to the server | decisions by this process | p50 | p99 | longest | the store's again after | timers late by |
|---|---|---|---|---|---|---|";

    /// How long decisions took that were asked for since the fault began, the shortest first.
    fn times(&self) -> Vec<Duration> {
        let since = self.samples.iter();
        let since = since.filter(|sample| sample.started >= self.began);
        let mut times: Vec<Duration> = since.map(Sample::took).collect();
        times.sort_unstable();
        times
    }

    pub(super) fn longest(&self) -> Duration {
        self.times().last().copied().unwrap_or_default()
    }

    /// How long it took from the end of the fault until all decisions were the store's again.
    pub(super) fn back(&self) -> Duration {
        let last = self
            .samples
            .iter()
            .filter(|one| one.source != Source::Backend);
        let last = last.map(|one| one.started).max();
        last.map_or(Duration::ZERO, |last| {
            last.saturating_duration_since(self.ended)
        })
    }

    /// Whether the machine has kept this thread or the server from working for so long that decisions can have been late
    /// without the fault.
    pub(super) fn is_disturbed(&self) -> bool {
        let before = |sample: &&Sample| sample.ended < self.began;
        let mut before = self.samples.iter().filter(before);
        self.scheduling > DEADLINE / 3 || before.any(|sample| sample.took() > DEADLINE / 3)
    }

    fn by_process(&self) -> usize {
        let own = |sample: &&Sample| sample.source == Source::LocalFallback;
        self.samples.iter().filter(own).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.times();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1000.0);
        write!(
            f,
            "| {} | {} of {} | {} | {} | {} | {} | {} |",
            self.name,
            self.by_process(),
            self.samples.len(),
            ms(at(50)),
            ms(at(99)),
            ms(self.longest()),
            ms(self.back()),
            ms(self.scheduling),
        )
    }
}
