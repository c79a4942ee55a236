//! Decisions in a backend: the number per second, and the server's processor time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tests::servers::Server;

use crate::measure::time;
use crate::report::{Goal, Row};

/// Concurrent requests, each in its own task.
const TASKS: u32 = 256;

/// Keys per task, where tasks have their own keys.
const KEYS: u32 = 100;

const ROUNDS: usize = 15;

/// The length of a sample.
const LENGTH: Duration = Duration::from_millis(400);

/// The keys of a case.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) one_key: bool,
}

/// The duration and processor time of a number of decisions.
#[derive(Clone, Copy)]
struct Sample {
    decisions: f64,
    nanos: f64,
    /// The server's processor time, in steps of 10 ms.
    server_micros: f64,
}

/// A client of the server.
pub(crate) struct Subject {
    name: &'static str,
    goal: Option<Goal>,
    sample: TakeSample,
}

type TakeSample = Box<dyn for<'a> Fn(&'a Server, Shape) -> SampleFuture<'a>>;

type SampleFuture<'a> = Pin<Box<dyn Future<Output = Sample> + 'a>>;

impl Subject {
    /// `ask` sends a request for a key. Its future returns whether the request was admitted.
    pub(crate) fn new<A, F>(name: &'static str, goal: Option<Goal>, ask: A) -> Self
    where
        A: Fn(Arc<str>) -> F + Clone + Send + 'static,
        F: Future<Output = bool> + Send + 'static,
    {
        let sample: TakeSample =
            Box::new(move |server, shape| Box::pin(sample(server, shape, ask.clone())));
        Self { name, goal, sample }
    }
}

/// Measures the subjects in turn in each round, so that other work on the machine affects all of them. The next round
/// begins with the next subject.
pub(crate) async fn measure<const N: usize>(
    server: &Server,
    shape: Shape,
    subjects: [Subject; N],
) -> [Row; N] {
    eprintln!("{}: {ROUNDS} rounds of {N} subjects", shape.name);
    let mut samples = [const { Vec::new() }; N];
    for round in 0..ROUNDS {
        for turn in 0..N {
            let number = (round + turn) % N;
            samples[number].push((subjects[number].sample)(server, shape).await);
        }
    }
    let mut samples = samples.iter();
    subjects.map(|subject| {
        let samples = samples.next().map_or(&[][..], Vec::as_slice);
        let row = row(shape.name, subject.name, samples);
        let goal = subject.goal;
        Row { goal, ..row }
    })
}

/// Runs all tasks for about [`LENGTH`], one request after another in each.
async fn sample<A, F>(server: &Server, shape: Shape, ask: A) -> Sample
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
        if took >= LENGTH / 2 {
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

fn row(case: &'static str, subject: &'static str, samples: &[Sample]) -> Row {
    let nanos = |sample: &Sample| sample.nanos / sample.decisions;
    let row = Row::of_rounds(case, subject, samples.iter().map(nanos).collect());
    let decisions: f64 = samples.iter().map(|sample| sample.decisions).sum();
    let server: f64 = samples.iter().map(|sample| sample.server_micros).sum();
    Row {
        per_second: row.ns_median.map(|nanos| 1e9 / nanos),
        server_cpu_us: (decisions > 0.0).then(|| server / decisions),
        ..row
    }
}
