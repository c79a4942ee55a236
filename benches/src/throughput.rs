//! Decisions in a backend: the number per second, and the server's processor time.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tests::servers::Server;

use crate::measure::time;
use crate::report::{Goal, OURS, Row};

/// Concurrent requests, each in its own task.
const TASKS: u32 = 256;

/// Keys per task, where tasks have their own keys.
const KEYS: u32 = 100;

/// The length of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: u32,
    pub(crate) sample: Duration,
}

impl Effort {
    pub(crate) const FULL: Self = Self {
        rounds: 15,
        sample: Duration::from_millis(400),
    };
}

/// The keys of a case.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) one_key: bool,
    /// The goal for our share of the raw client's time.
    pub(crate) goal: f64,
}

/// The duration and processor time of a number of decisions.
#[derive(Clone, Copy)]
struct Sample {
    decisions: f64,
    nanos: f64,
    /// The server's processor time, in steps of 10 ms.
    server_micros: f64,
}

/// Measures our client and the raw client in turn.
pub(crate) async fn measure<R, Q, O, P>(
    server: &Server,
    shape: Shape,
    effort: Effort,
    ask_raw: R,
    ask_ours: O,
) -> [Row; 2]
where
    R: Fn(Arc<str>) -> Q + Clone + Send + 'static,
    Q: Future<Output = bool> + Send + 'static,
    O: Fn(Arc<str>) -> P + Clone + Send + 'static,
    P: Future<Output = bool> + Send + 'static,
{
    let (mut raws, mut ours) = (Vec::new(), Vec::new());
    for round in 0..effort.rounds {
        if round % 2 == 0 {
            raws.push(sample(server, shape, effort.sample, &ask_raw).await);
        }
        ours.push(sample(server, shape, effort.sample, &ask_ours).await);
        if round % 2 == 1 {
            raws.push(sample(server, shape, effort.sample, &ask_raw).await);
        }
    }
    let ours = row(shape.name, OURS, ours);
    let raw = row(shape.name, "raw", raws);
    [
        ours,
        Row {
            goal: Some(Goal::Share(shape.goal)),
            ..raw
        },
    ]
}

/// Measures one subject, after the others.
pub(crate) async fn alone<A, F>(
    server: &Server,
    shape: Shape,
    effort: Effort,
    subject: &'static str,
    ask: A,
) -> Row
where
    A: Fn(Arc<str>) -> F + Clone + Send + 'static,
    F: Future<Output = bool> + Send + 'static,
{
    let mut samples = Vec::new();
    for _ in 0..effort.rounds {
        samples.push(sample(server, shape, effort.sample, &ask).await);
    }
    row(shape.name, subject, samples)
}

/// Runs all tasks for about `length`, one request after another in each.
async fn sample<A, F>(server: &Server, shape: Shape, length: Duration, ask: &A) -> Sample
where
    A: Fn(Arc<str>) -> F + Clone + Send + 'static,
    F: Future<Output = bool> + Send + 'static,
{
    let mut asks = 1;
    loop {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| work(keys(shape, task), asks, ask.clone()))
            .collect();
        let cpu = server.cpu_micros();
        let took = time(async {
            let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
            for task in tasks {
                let done = task.await;
                assert!(done.is_ok(), "a task has failed");
            }
        })
        .await;
        if took >= length / 2 {
            let server = Duration::from_micros(server.cpu_micros() - cpu);
            return Sample {
                decisions: f64::from(TASKS * asks),
                nanos: took.as_secs_f64() * 1e9,
                server_micros: server.as_secs_f64() * 1e6,
            };
        }
        asks *= 2;
    }
}

/// One task: decides on its keys in turn.
async fn work<F: Future<Output = bool>>(
    keys: Vec<Arc<str>>,
    asks: u32,
    ask: impl Fn(Arc<str>) -> F,
) {
    let in_turn = keys.iter().cycle();
    for (_, key) in (0..asks).zip(in_turn) {
        // Every request is admitted. A request that times out on a busy machine is sent again, and its time counts.
        while !ask(Arc::clone(key)).await {}
    }
}

fn keys(shape: Shape, task: u32) -> Vec<Arc<str>> {
    if shape.one_key {
        return vec!["everyone".into()];
    }
    (0..KEYS)
        .map(|n| format!("client {task} {n}").into())
        .collect()
}

fn row(case: &'static str, subject: &'static str, mut samples: Vec<Sample>) -> Row {
    let nanos = |sample: &Sample| sample.nanos / sample.decisions;
    samples.sort_by(|one, other| nanos(one).total_cmp(&nanos(other)));
    let median = samples.get(samples.len() / 2).map(nanos);
    let decisions: f64 = samples.iter().map(|sample| sample.decisions).sum();
    let server: f64 = samples.iter().map(|sample| sample.server_micros).sum();
    Row {
        ns_min: samples.first().map(nanos),
        ns_median: median,
        ns_max: samples.last().map(nanos),
        per_second: median.map(|nanos| 1e9 / nanos),
        server_cpu_us: (decisions > 0.0).then(|| server / decisions),
        ..Row::new(case, subject)
    }
}
