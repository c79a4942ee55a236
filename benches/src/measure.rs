//! Cases, and how they are timed.

use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Runtime;
use tower::Service;

use crate::alloc::heap_of;
use crate::report::{Goal, Row};

/// One table: the same work done by several subjects.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) figure: Figure,
    pub(crate) subjects: Vec<Subject>,
}

/// What a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// A call: its time, its requests to the heap, its instructions.
    Call,
    /// The same without instructions, because what takes time is waiting for memory.
    Access,
    /// How many calls threads make together.
    Throughput,
    /// How much memory a key takes, which is not found out in this process.
    Key,
    /// The same of many more keys than there is room for, and the time of a call.
    Flood,
}

/// One way of doing a case's work.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    goal: Option<Goal>,
    /// Does the work so many times, in a loop of its own: nothing is called through a pointer in it.
    /// Says how long that took.
    run: Box<dyn FnMut(u32) -> Duration>,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: u32,
    /// Short enough that most samples are not interrupted, long enough that reading the clock
    /// (50 ns) does not show.
    pub(crate) sample: Duration,
}

impl Effort {
    pub(crate) const FULL: Self = Self {
        rounds: 2001,
        sample: Duration::from_micros(100),
    };
}

/// Calls in a sample of several threads: enough for a millisecond, since it takes them some microseconds to meet. Not found
/// out by trying, because a try in which one of them was interrupted says nothing.
const THROUGHPUT_CALLS: u32 = 20_000;

/// Calls over which heap requests are counted.
const COUNTED_CALLS: u32 = 1000;

impl Subject {
    /// Work that is no service's: a loop of so many turns.
    pub(crate) fn looping(name: &'static str, mut run: impl FnMut(u32) + 'static) -> Self {
        Self::timing(name, move |calls| time_of(|| run(calls)))
    }

    /// Work that says itself how long it took.
    pub(crate) fn timing(name: &'static str, run: impl FnMut(u32) -> Duration + 'static) -> Self {
        Self {
            name,
            goal: None,
            run: Box::new(run),
        }
    }

    /// Calls `service` with what `request` makes, the way an executor would: `poll_ready`, `call`,
    /// then `poll` until there is an answer.
    ///
    /// # Panics
    ///
    /// When the service is not ready, has no answer at once, or the answer is an error: then it is
    /// not what the case is about that would be timed.
    pub(crate) fn new<S, Req>(name: &'static str, mut service: S, request: fn() -> Req) -> Self
    where
        S: Service<Req> + 'static,
        Req: 'static,
    {
        Self::looping(name, move |calls| {
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..calls {
                // Neither what the service holds nor what it is asked may be known to the
                // optimiser, or it would move work out of the loop and drop the paths not taken.
                let service = black_box(&mut service);
                let ready = service.poll_ready(&mut context);
                assert!(matches!(ready, Poll::Ready(Ok(()))), "{name}: not ready");
                let answer = pin!(service.call(black_box(request()))).poll(&mut context);
                assert!(matches!(answer, Poll::Ready(Ok(_))), "{name}: no answer");
                drop(black_box(answer));
            }
        })
    }

    /// The same on a runtime with timers, also for services that answer at their second poll.
    ///
    /// # Panics
    ///
    /// When the service is not ready, or has no answer by then, or an error.
    pub(crate) fn in_runtime<S, Req>(
        name: &'static str,
        mut service: S,
        request: fn() -> Req,
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

    /// The share of this subject's time that ours may take.
    pub(crate) fn goal(mut self, share: f64) -> Self {
        self.goal = Some(Goal::Share(share));
        self
    }

    /// The same of what it takes longer than the bare service.
    pub(crate) fn goal_over_bare(mut self, share: f64) -> Self {
        self.goal = Some(Goal::OverBare(share));
        self
    }

    pub(crate) fn run(&mut self, calls: u32) -> Duration {
        (self.run)(calls)
    }

    /// Doubles the calls until they fill a sample. This warms up, too.
    fn calls_per_sample(&mut self, sample: Duration) -> u32 {
        let mut calls = 1;
        // The least of some runs: one that was interrupted says nothing.
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

    /// Rows of what can be found out in this process.
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

    /// Times all subjects, one sample of each per round, so that whatever else the machine does
    /// meets all of them. Every other round goes backwards: none always follows the same one.
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

fn row(case: &'static str, subject: &mut Subject, mut samples: Vec<f64>) -> Row {
    samples.sort_by(f64::total_cmp);
    let heap = heap_of(|| {
        subject.run(COUNTED_CALLS);
    });
    let per_call = |count| f64::from(count) / f64::from(COUNTED_CALLS);
    Row {
        ns_min: samples.first().copied(),
        ns_median: samples.get(samples.len() / 2).copied(),
        ns_max: samples.last().copied(),
        allocs: Some(per_call(heap.allocations)),
        bytes: Some(per_call(heap.bytes)),
        goal: subject.goal,
        ..Row::new(case, subject.name)
    }
}

/// What this thread asked of the heap says nothing about the others.
fn throughput(row: Row) -> Row {
    Row {
        per_second: row.ns_min.map(|nanos| 1e9 / nanos),
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

/// How long a future takes.
#[expect(
    clippy::disallowed_types,
    reason = "a benchmark measures real time, which a paused clock must not govern"
)]
pub(crate) async fn time(work: impl Future<Output = ()>) -> Duration {
    let start = std::time::Instant::now();
    work.await;
    start.elapsed()
}
