//! Cases and their measurement.

use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Runtime;
use tower::Service;

use crate::alloc::heap_of;
use crate::report::{Goal, Row};

/// One table: the same work, done by several subjects.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) figure: Figure,
    pub(crate) subjects: Vec<Subject>,
}

/// The figure that a case measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// A call: time, allocations and instructions.
    Call,
    /// A call without instructions, because its time is mostly cache misses.
    Access,
    /// Calls per second of several threads together.
    Throughput,
    /// Memory per key, measured in another process.
    Key,
    /// Memory per key and time per call, with many more keys than the table has room for.
    Flood,
}

/// One way to do a case's work.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    goal: Option<Goal>,
    /// Does the work this number of times in its own loop, without a call through a pointer inside, and returns the
    /// duration.
    run: Box<dyn FnMut(u32) -> Duration>,
}

/// The length of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: u32,
    /// Short enough that most samples are not interrupted, and long enough to hide the 50 ns of reading the clock.
    pub(crate) sample: Duration,
}

impl Effort {
    pub(crate) const FULL: Self = Self {
        rounds: 2001,
        sample: Duration::from_micros(100),
    };
    /// Some of the subjects take a second for a call.
    pub(crate) const GROWTH: Self = Self {
        rounds: 21,
        sample: Duration::from_millis(2),
    };
}

/// Calls in a sample of several threads: about a millisecond, because the threads need some microseconds to meet. The
/// number is fixed, because an interrupted trial run would give a wrong one.
const THROUGHPUT_CALLS: u32 = 20_000;

/// Calls whose allocations are counted: whole rounds of each case.
const COUNTED_CALLS: u32 = if cfg!(test) { 1_000 } else { 10_000 };

impl Subject {
    /// Work other than a service: a loop of the given number of turns.
    pub(crate) fn looping(name: &'static str, mut run: impl FnMut(u32) + 'static) -> Self {
        Self::timing(name, move |calls| time_of(|| run(calls)))
    }

    /// Work that measures its own duration.
    pub(crate) fn timing(name: &'static str, run: impl FnMut(u32) -> Duration + 'static) -> Self {
        Self {
            name,
            goal: None,
            run: Box::new(run),
        }
    }

    /// Calls `service` with requests of `request` as an executor would: `poll_ready`, `call`, then `poll` until the
    /// response.
    ///
    /// # Panics
    ///
    /// Panics if the service is not ready, does not answer in the first poll, or returns an error, since the
    /// measurement would be of another case.
    pub(crate) fn new<S, Req>(name: &'static str, mut service: S, request: fn() -> Req) -> Self
    where
        S: Service<Req> + 'static,
        Req: 'static,
    {
        Self::looping(name, move |calls| {
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..calls {
                // Hides the service's state and the request from the optimiser, which could otherwise move work out of
                // the loop and drop untaken paths.
                let service = black_box(&mut service);
                let ready = service.poll_ready(&mut context);
                assert!(matches!(ready, Poll::Ready(Ok(()))), "{name}: not ready");
                let answer = pin!(service.call(black_box(request()))).poll(&mut context);
                assert!(matches!(answer, Poll::Ready(Ok(_))), "{name}: no answer");
                drop(black_box(answer));
            }
        })
    }

    /// Like `new`, on a runtime with timers, and for services that answer in their second poll.
    ///
    /// # Panics
    ///
    /// Panics if the service is not ready, does not answer in the second poll, or returns an error.
    pub(crate) fn in_runtime<S, Req>(
        name: &'static str,
        mut service: S,
        mut request: impl FnMut() -> Req + 'static,
        runtime: &Arc<Runtime>,
    ) -> Self
    where
        S: Service<Req> + 'static,
        Req: 'static,
    {
        let runtime = Arc::clone(runtime);
        Self::looping(name, move |calls| {
            let _timers = runtime.enter();
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..calls {
                let service = black_box(&mut service);
                let ready = service.poll_ready(&mut context);
                assert!(matches!(ready, Poll::Ready(Ok(()))), "{name}: not ready");
                let mut call = pin!(service.call(black_box(request())));
                let mut answer = call.as_mut().poll(&mut context);
                if answer.is_pending() {
                    answer = call.as_mut().poll(&mut context);
                }
                assert!(matches!(answer, Poll::Ready(Ok(_))), "{name}: no answer");
                drop(black_box(answer));
            }
        })
    }

    /// Sets the goal for our share of this subject's time.
    pub(crate) fn goal(mut self, share: f64) -> Self {
        self.goal = Some(Goal::Share(share));
        self
    }

    /// Sets the goal for our share of this subject's time over the bare service.
    pub(crate) fn goal_over_bare(mut self, share: f64) -> Self {
        self.goal = Some(Goal::OverBare(share));
        self
    }

    pub(crate) fn run(&mut self, calls: u32) -> Duration {
        (self.run)(calls)
    }

    /// Doubles the number of calls until they fill a sample, which also warms up the subject.
    fn calls_per_sample(&mut self, sample: Duration) -> u32 {
        let mut calls = 1;
        // The minimum of several runs, because an interrupted run has no meaning.
        while (0..5).map(|_| self.run(calls)).min() < Some(sample) {
            calls *= 2;
        }
        calls
    }

    fn nanos_per_call(&mut self, calls: u32) -> f64 {
        self.run(calls).as_secs_f64() * 1e9 / f64::from(calls)
    }
}

impl Case {
    pub(crate) fn new(name: &'static str, figure: Figure, subjects: Vec<Subject>) -> Self {
        Self {
            name,
            figure,
            subjects,
        }
    }

    /// Measures the rows that need only this process.
    pub(crate) fn measure(&mut self, effort: Effort) -> Vec<Row> {
        match self.figure {
            Figure::Call | Figure::Access => {
                let subjects = self.subjects.iter_mut();
                let calls = subjects.map(|subject| subject.calls_per_sample(effort.sample));
                let calls = calls.collect();
                self.time(calls, effort.rounds)
            }
            Figure::Throughput => {
                let calls = vec![THROUGHPUT_CALLS; self.subjects.len()];
                let rows = self.time(calls, effort.rounds.div_ceil(10));
                rows.into_iter().map(throughput).collect()
            }
            Figure::Key | Figure::Flood => {
                let row = |subject: &Subject| Row {
                    goal: subject.goal,
                    ..Row::new(self.name, subject.name)
                };
                self.subjects.iter().map(row).collect()
            }
        }
    }

    /// Takes one sample of each subject per round, so that other work on the machine affects all of them. Every other
    /// round runs backwards, so that no subject always follows the same one.
    fn time(&mut self, calls: Vec<u32>, rounds: u32) -> Vec<Row> {
        let mut samples = vec![Vec::new(); self.subjects.len()];
        for round in 0..rounds {
            let forwards = 0..self.subjects.len();
            let order: Vec<usize> = match round % 2 {
                0 => forwards.collect(),
                _ => forwards.rev().collect(),
            };
            for place in order {
                let nanos = self.subjects[place].nanos_per_call(calls[place]);
                samples[place].push(nanos);
            }
        }
        let subjects = self.subjects.iter_mut().zip(samples);
        subjects
            .map(|(subject, samples)| row(self.name, subject, samples))
            .collect()
    }
}

fn row(case: &'static str, subject: &mut Subject, samples: Vec<f64>) -> Row {
    let heap = heap_of(|| {
        subject.run(COUNTED_CALLS);
    });
    let per_call = |count| f64::from(count) / f64::from(COUNTED_CALLS);
    Row {
        allocs: Some(per_call(heap.allocations)),
        bytes: Some(per_call(heap.bytes)),
        goal: subject.goal,
        ..Row::of_rounds(case, subject.name, samples)
    }
}

/// Drops the allocations, because only this thread's were counted.
fn throughput(row: Row) -> Row {
    Row {
        per_second: row.ns_median.map(|nanos| 1e9 / nanos),
        allocs: None,
        bytes: None,
        ..row
    }
}

#[expect(
    clippy::disallowed_types,
    reason = "a benchmark measures real time, which a paused clock must not govern"
)]
pub(crate) fn time_of(run: impl FnOnce()) -> Duration {
    let start = std::time::Instant::now();
    run();
    start.elapsed()
}

/// The duration of a future.
#[expect(
    clippy::disallowed_types,
    reason = "a benchmark measures real time, which a paused clock must not govern"
)]
pub(crate) async fn time(work: impl Future<Output = ()>) -> Duration {
    let start = std::time::Instant::now();
    work.await;
    start.elapsed()
}
