//! Services with known latencies.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt, service_fn};

/// Virtual milliseconds per millisecond.
const SCALE: f64 = 100.0;

pub(crate) fn ms(millis: f64) -> Duration {
    Duration::from_secs_f64(millis * SCALE / 1e3)
}

/// The latency of an answer, in milliseconds.
pub(crate) type Draw = fn(&mut StdRng) -> f64;

/// Around `mean`, with a standard deviation of 8 % of the mean.
pub(crate) fn normal(random: &mut StdRng, mean: f64) -> f64 {
    (mean * (1.0 + 0.08 * standard_normal(random))).max(0.0)
}

/// 97 % around 15 ms, 3 % around 115 ms.
pub(crate) fn bimodal(random: &mut StdRng) -> f64 {
    let mean = if random.random_bool(0.97) {
        15.0
    } else {
        115.0
    };
    normal(random, mean)
}

/// Around `median`, lognormal.
pub(crate) fn lognormal(random: &mut StdRng, median: f64, sigma: f64) -> f64 {
    median * (sigma * standard_normal(random)).exp()
}

/// Lognormal around 10 ms with σ 0.5; 5 % are Pareto from 30 ms on, α 1.4.
pub(crate) fn heavy_tail(random: &mut StdRng) -> f64 {
    if random.random_bool(0.05) {
        30.0 * (1.0 - random.random::<f64>()).powf(-1.0 / 1.4)
    } else {
        lognormal(random, 10.0, 0.5)
    }
}

/// A standard normal deviate, by the method of Box and Muller.
fn standard_normal(random: &mut StdRng) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}

/// The service's answer to an attempt.
pub(crate) struct Answer {
    /// In milliseconds.
    pub(crate) after: f64,
    pub(crate) fails: bool,
}

impl Answer {
    pub(crate) fn after(millis: f64) -> Self {
        let (after, fails) = (millis, false);
        Self { after, fails }
    }

    pub(crate) fn failure_after(millis: f64) -> Self {
        let (after, fails) = (millis, true);
        Self { after, fails }
    }
}

/// A request: the class of a call.
pub(crate) type Class = u32;
pub(crate) type Inner = BoxCloneSyncService<Class, (), Failed>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed;

/// The load on a service.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// The number of callers. Each makes one call after the other.
    pub(crate) callers: u32,
    /// The number of calls, of all callers together.
    pub(crate) calls: u32,
    /// The pause between a caller's calls, in milliseconds.
    pub(crate) pause: f64,
    /// The time after which a caller gives up, in milliseconds.
    pub(crate) patience: f64,
    /// The share of calls of class 1; the rest are of class 0.
    pub(crate) second_class: f64,
}

impl Load {
    pub(crate) fn calls(calls: u32) -> Self {
        Self {
            callers: 20,
            calls,
            pause: 0.0,
            patience: 1e9,
            second_class: 0.0,
        }
    }
}

/// A service under a layer, with its own clock and random numbers.
pub(crate) struct World {
    runtime: Runtime,
    service: Inner,
    random: Arc<Mutex<StdRng>>,
    /// The number of calls so far, for each class.
    calls: Arc<[AtomicU32; 2]>,
    start: Instant,
}

impl World {
    /// `answer` receives the class and the number of attempts in flight.
    pub(crate) fn new<S>(
        layer: impl FnOnce(Inner) -> S,
        answer: impl Fn(&mut StdRng, Class, usize) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        S: Service<Class, Response = (), Error = Failed> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let random = Arc::new(Mutex::new(StdRng::seed_from_u64(1)));
        let (answer, chance) = (Arc::new(answer), Arc::clone(&random));
        let out = Arc::new(());
        let inner = service_fn(move |class: Class| {
            let attempt = Arc::clone(&out);
            let others = Arc::strong_count(&out) - 2;
            let answer = answer(&mut chance.lock().unwrap(), class, others);
            async move {
                let _attempt = attempt;
                sleep(ms(answer.after)).await;
                if answer.fails { Err(Failed) } else { Ok(()) }
            }
        });
        let clock = runtime.enter();
        let service = BoxCloneSyncService::new(layer(BoxCloneSyncService::new(inner)));
        let start = Instant::now();
        drop(clock);
        Self {
            runtime,
            service,
            random,
            calls: Arc::default(),
            start,
        }
    }

    pub(crate) fn run(&self, load: Load) {
        self.runtime.block_on(async {
            let mut callers = JoinSet::new();
            for _ in 0..load.callers {
                let (service, random) = (self.service.clone(), Arc::clone(&self.random));
                let calls = Arc::clone(&self.calls);
                callers.spawn(async move {
                    for _ in 0..load.calls / load.callers {
                        let second = random.lock().unwrap().random_bool(load.second_class);
                        calls[usize::from(second)].fetch_add(1, Relaxed);
                        let call = service.clone().oneshot(second.into());
                        let _ = timeout(ms(load.patience), call).await;
                        if load.pause > 0.0 {
                            sleep(ms(load.pause)).await;
                        }
                    }
                });
            }
            callers.join_all().await;
        });
    }

    /// The number of calls so far, for each class.
    pub(crate) fn calls(&self) -> [u32; 2] {
        [0, 1].map(|class: usize| self.calls[class].load(Relaxed))
    }

    /// Lets `millis` milliseconds pass without calls.
    pub(crate) fn idle(&self, millis: f64) {
        self.runtime.block_on(async { sleep(ms(millis)).await });
    }

    /// The time since the start, in milliseconds.
    pub(crate) fn elapsed(&self) -> f64 {
        let elapsed = self.runtime.block_on(async { self.start.elapsed() });
        elapsed.as_secs_f64() * 1e3 / SCALE
    }
}
