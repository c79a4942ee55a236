use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    task::{JoinHandle, JoinSet},
    time::{Instant, interval, sleep_until},
};
use tower_dist_ratelimit::{Limiter, Source};

use super::CALM;

/// Between two requests. They do not wait for one another, as those of a service's clients do not.
const EVERY: Duration = Duration::from_millis(1);

const CLIENTS: u64 = 100;

/// One decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) started: Instant,
    pub(crate) ended: Instant,
    pub(crate) source: Source,
}

impl Sample {
    pub(crate) fn took(&self) -> Duration {
        self.ended - self.started
    }

    pub(crate) fn is_by_store(&self) -> bool {
        self.source == Source::Backend
    }
}

/// Requests that keep coming.
pub(crate) struct Load {
    samples: Arc<Mutex<Vec<Sample>>>,
    requests: JoinHandle<()>,
    lateness: JoinHandle<()>,
    late: Arc<Mutex<Duration>>,
}

impl Load {
    pub(crate) fn start(limiter: Limiter) -> Self {
        let samples = Arc::<Mutex<Vec<Sample>>>::default();
        let late = Arc::<Mutex<Duration>>::default();
        Self {
            requests: tokio::spawn(requests(limiter, Arc::clone(&samples))),
            lateness: tokio::spawn(lateness(Arc::clone(&late))),
            samples,
            late,
        }
    }

    /// Whether for some time only the store has decided on what came later than this.
    pub(crate) fn is_calm(&self, later_than: Instant) -> bool {
        let samples = self.samples.lock().unwrap();
        let since = samples
            .iter()
            .rfind(|sample| !sample.is_by_store())
            .map_or(later_than, |last| last.ended.max(later_than));
        samples
            .last()
            .is_some_and(|last| last.started >= since + CALM)
    }

    pub(crate) async fn stop(self) -> Done {
        self.lateness.abort();
        self.requests.abort();
        assert!(self.requests.await.is_err_and(|error| error.is_cancelled()));
        Done {
            samples: std::mem::take(&mut *self.samples.lock().unwrap()),
            scheduling: *self.late.lock().unwrap(),
        }
    }
}

/// What was decided.
pub(crate) struct Done {
    pub(crate) samples: Vec<Sample>,
    /// How late this machine has been for anything.
    pub(crate) scheduling: Duration,
}

async fn requests(limiter: Limiter, samples: Arc<Mutex<Vec<Sample>>>) {
    let mut every = interval(EVERY);
    let mut asked = JoinSet::new();
    for number in 0.. {
        every.tick().await;
        let (limiter, samples) = (limiter.clone(), Arc::clone(&samples));
        let started = Instant::now();
        asked.spawn(async move {
            let decision = limiter.check(number % CLIENTS).await.unwrap();
            assert!(decision.allowed, "{decision:?}");
            samples.lock().unwrap().push(Sample {
                started,
                ended: Instant::now(),
                source: decision.source,
            });
        });
        while let Some(done) = asked.try_join_next() {
            done.unwrap();
        }
    }
}

/// What the machine, and not the limiter, adds to a wait: the most that a timer has been late.
async fn lateness(most: Arc<Mutex<Duration>>) {
    loop {
        let due = Instant::now() + EVERY;
        sleep_until(due).await;
        let late = due.elapsed();
        let mut most = most.lock().unwrap();
        *most = late.max(*most);
    }
}
