use std::{fmt, time::Duration};

use tokio::time::Instant;
use tower_dist_ratelimit::Source;

use super::{
    BACK, TIMEOUT,
    load::{Done, Sample},
};

/// The load's results during a fault, until the backend decided again.
pub(crate) struct Report {
    pub(crate) name: &'static str,
    /// The times before and after the start of the fault.
    pub(crate) began: Instant,
    pub(crate) begun: Instant,
    /// The times before and after the end of the fault.
    pub(crate) ending: Instant,
    pub(crate) ended: Instant,
    pub(crate) load: Done,
    /// Whether the server lost its counts.
    pub(crate) forgot: bool,
}

impl Report {
    pub(crate) const HEAD: &'static str = "\
| what happens to the server | decisions by this process | p50 | p99 | longest | the store's again after | timers late by |
|---|---|---|---|---|---|---|";

    /// The sorted latencies of decisions since the start of the fault.
    fn times(&self) -> Vec<Duration> {
        let since = self.load.samples.iter();
        let since = since.filter(|sample| sample.started >= self.began);
        let mut times: Vec<Duration> = since.map(Sample::took).collect();
        times.sort_unstable();
        times
    }

    pub(crate) fn longest(&self) -> Duration {
        self.times().last().copied().unwrap_or_default()
    }

    /// Panics if a decision took longer than `timeout` and longer than the machine's own delay.
    pub(crate) fn is_in_time(&self, timeout: Duration) {
        let (longest, late) = (self.longest(), self.load.scheduling);
        assert!(
            longest <= timeout + 2 * late + Duration::from_millis(5),
            "{}: a decision took {longest:?}, and no more than {late:?} of that is the machine's",
            self.name
        );
    }

    /// The time from the end of the fault until the backend made all decisions again.
    pub(crate) fn back(&self) -> Duration {
        let others = self.load.samples.iter().filter(|one| !one.is_by_store());
        let last = others.map(|one| one.started).max();
        last.map_or(Duration::ZERO, |last| {
            last.saturating_duration_since(self.ended)
        })
    }

    /// Panics if that took longer than the longest pauses. The pauses restart after a stop of the machine, because the
    /// probes are late then.
    pub(crate) fn is_back_in_time(&self) {
        let standstills = self.load.standstills.iter();
        let since = standstills.filter(|one| one.ended >= self.ended);
        let most = since.fold(BACK, |most, one| most + BACK + one.lasted);
        let (name, back) = (self.name, self.back());
        assert!(back <= most, "{name}: back after {back:?}, not {most:?}");
    }

    /// Whether the machine stopped this thread or the server for so long that decisions can be late without the fault.
    pub(crate) fn is_disturbed(&self) -> bool {
        let before = |sample: &&Sample| sample.ended < self.began;
        let mut before = self.load.samples.iter().filter(before);
        self.load.scheduling > TIMEOUT / 3 || before.any(|sample| sample.took() > TIMEOUT / 3)
    }

    fn by_process(&self) -> usize {
        let own = |sample: &&Sample| sample.source == Source::Local;
        self.load.samples.iter().filter(own).count()
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
            self.load.samples.len(),
            ms(at(50)),
            ms(at(99)),
            ms(self.longest()),
            ms(self.back()),
            ms(self.load.scheduling),
        )
    }
}
