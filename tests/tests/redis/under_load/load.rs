use std::{
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use tokio::{
    runtime::Builder,
    sync::oneshot,
    task::JoinSet,
    time::{Instant, interval, sleep_until},
};
use tower_dist_ratelimit::{Limiter, Source};
use tracing::Level;

use super::{CALM, ENOUGH, TIMEOUT, lines::Lines};

/// The interval between two requests. They do not wait for one another, like the requests of a service's clients.
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

/// A constant load on its own thread, which only the limiter under test can delay.
pub(crate) struct Load {
    samples: Arc<Mutex<Vec<Sample>>>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<(Lateness, Vec<Level>)>,
}

impl Load {
    pub(crate) fn start(limiter: Limiter) -> Self {
        let samples = Arc::<Mutex<Vec<Sample>>>::default();
        let (stop, stopped) = oneshot::channel();
        let requests = requests(limiter, Arc::clone(&samples));
        let thread = std::thread::spawn(|| {
            let (lines, _guard) = Lines::listen();
            let runtime = Builder::new_current_thread().enable_time().build();
            let mut late = Lateness::default();
            runtime.unwrap().block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = requests => {}
                    () = lateness(&mut late) => {}
                }
            });
            (late, lines.seen())
        });
        Self {
            samples,
            stop,
            thread,
        }
    }

    /// The number of decisions on requests after this time.
    pub(super) fn decided_since(&self, since: Instant) -> usize {
        let samples = self.samples.lock().unwrap();
        let later = samples.iter().filter(|sample| sample.started >= since);
        later.count()
    }

    /// Whether the backend alone has decided on many requests after this time, for a while.
    pub(crate) fn is_calm(&self, later_than: Instant) -> bool {
        let samples = self.samples.lock().unwrap();
        let since = samples
            .iter()
            .rfind(|sample| !sample.is_by_store())
            .map_or(later_than, |last| last.ended.max(later_than));
        let last = samples.last().map(|sample| sample.started);
        let later = samples.iter().filter(|sample| sample.started >= since);
        last.is_some_and(|last| last >= since + CALM) && later.count() > ENOUGH
    }

    pub(crate) async fn stop(self) -> Done {
        self.stop
            .send(())
            .expect("it goes on until it is told to stop");
        let joined = tokio::task::spawn_blocking(|| self.thread.join());
        let (late, lines) = joined.await.unwrap().unwrap();
        Done {
            samples: std::mem::take(&mut *self.samples.lock().unwrap()),
            scheduling: late.most,
            standstills: late.standstills,
            lines,
        }
    }
}

/// The results of a load.
pub(crate) struct Done {
    pub(crate) samples: Vec<Sample>,
    /// The longest delay of a timer on this machine.
    pub(crate) scheduling: Duration,
    /// Delays of the machine that alone can exceed the timeout.
    pub(crate) standstills: Vec<Standstill>,
    /// The levels of the log lines.
    pub(crate) lines: Vec<Level>,
}

/// A period in which the machine did not run this thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standstill {
    pub(crate) lasted: Duration,
    pub(crate) ended: Instant,
}

/// The delays of timers.
#[derive(Default)]
struct Lateness {
    most: Duration,
    standstills: Vec<Standstill>,
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

/// Measures the machine's own share of a wait: the delay of timers on this thread.
async fn lateness(late: &mut Lateness) {
    loop {
        let due = Instant::now() + EVERY;
        sleep_until(due).await;
        let (ended, lasted) = (Instant::now(), due.elapsed());
        late.most = late.most.max(lasted);
        if lasted >= TIMEOUT {
            late.standstills.push(Standstill { lasted, ended });
        }
    }
}
