//! Compares the scripts with the algorithms in Rust: the same requests at the same times, on a real server whose clock
//! is an argument. The tests are in this crate because only here can a test set that clock.

mod clock;
mod division;
mod jumps;
mod lab;
mod same;
mod step;
mod together;

use std::time::Duration;

use proptest::{prelude::*, test_runner::TestRunner};
use tower_dist_ratelimit::{Algorithm, Quota};

use self::{
    lab::Lab,
    step::{Step, steps},
    together::{PendingReply, Together},
};

/// The start of the traces, in 2023, so that times have a realistic size.
const START: u64 = 1_700_000_000_000_000;

const ALGORITHMS: [Algorithm; 10] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::LeakyQueue {
        max_wait: Duration::from_millis(777),
    },
    Algorithm::FixedWindow { staggered: false },
    Algorithm::FixedWindow { staggered: true },
    Algorithm::FixedWindowFromFirstRequest,
    Algorithm::SlidingWindow,
    Algorithm::SlidingWindowBuckets { count: 5 },
    Algorithm::SlidingWindowStrict { count: 8 },
    Algorithm::SlidingWindowLog,
];

/// A quota whose window all numbers of sub-windows divide, with a limit, and a burst for buckets.
fn quota(algorithm: Algorithm) -> impl Strategy<Value = Quota> {
    let windows = prop::sample::select(vec![65_536_000, 655_360, 2_621_440_000, 86_507_520_000]);
    (1_u64..200, windows, 1_u64..50).prop_map(move |(limit, window, burst)| {
        let quota = Quota::new(limit, Duration::from_micros(window));
        match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => quota.burst(burst),
            _ => quota,
        }
    })
}

type Trace = (Algorithm, bool, Quota, Vec<Step>);

fn trace() -> impl Strategy<Value = Trace> {
    (prop::sample::select(&ALGORITHMS[..]), any::<bool>())
        .prop_flat_map(|(algorithm, dynamic)| (Just(algorithm), Just(dynamic), quota(algorithm)))
        .prop_flat_map(|(algorithm, dynamic, quota)| {
            (Just(algorithm), Just(dynamic), Just(quota), steps(quota))
        })
}

fn follow(
    lab: &Lab,
    policies: &[(Algorithm, bool, Quota)],
    steps: &[Step],
) -> Result<(), TestCaseError> {
    lab.clear();
    let mut together = Together::new(policies);
    let mut now = START;
    let mut pending = PendingReply::default();
    for step in steps {
        if step.wait != 0 {
            // Requests of one time go out in one call.
            pending.compare(lab, now)?;
            now = now.saturating_add_signed(step.wait);
        }
        together.step(now, step, &mut pending);
    }
    pending.compare(lab, now)
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::with_cases(cases)
    })
}

#[test]
fn scripts_decide_as_the_algorithms_in_rust_do() {
    let lab = Lab::new();
    runner(2000)
        .run(&trace(), |(algorithm, dynamic, quota, steps)| {
            follow(&lab, &[(algorithm, dynamic, quota)], &steps)
        })
        .unwrap();
}

/// With exact units, the wait and the burst are more units together than the scripts count.
#[test]
fn a_long_leaky_queue_with_a_fast_dynamic_quota_counts_all_waiting_requests() {
    // The limit is a prime number, so an exact token is a million units.
    let quota = Quota::per_second(1_299_709).burst(59 * 1_299_709);
    let max_wait = Duration::from_millis(3_600_300);
    let policy = (
        Algorithm::LeakyQueue { max_wait },
        true,
        Quota::per_second(1_000),
    );
    // Each request adds 59 s to the queue, of which one drains until the next. The queue is full after an hour.
    let step = Step {
        wait: 1_000_000,
        cost: quota.burst_size(),
        want: 0,
        settle: None,
        quota: Some(quota),
    };
    follow(&Lab::new(), &[policy], &vec![step; 70]).unwrap();
}

#[test]
fn a_script_for_several_policies_decides_all_or_nothing_as_rust_does() {
    let lab = Lab::new();
    let one = || {
        (prop::sample::select(&ALGORITHMS[..]), any::<bool>()).prop_flat_map(
            |(algorithm, dynamic)| (Just(algorithm), Just(dynamic), quota(algorithm)),
        )
    };
    let several = prop::collection::vec(one(), 2..5).prop_flat_map(|policies| {
        let shortest = policies.iter().map(|one| one.2).min_by_key(Quota::window);
        (Just(policies), steps(shortest.unwrap()))
    });
    runner(500)
        .run(&several, |(policies, steps)| {
            follow(&lab, &policies, &steps)
        })
        .unwrap();
}

/// The log rejects a request that the bucket alone would allow. Then the clock jumps back, to a time after the last
/// write.
#[test]
fn a_rejected_request_with_another_burst_at_the_same_rate_does_not_count_as_a_write() {
    let lab = Lab::new();
    let quota = Quota::new(147, Duration::from_micros(86_507_520_000));
    let policies = [
        (Algorithm::LeakyBucket, true, quota.burst(8)),
        (
            Algorithm::SlidingWindowLog,
            true,
            Quota::new(3, quota.window()),
        ),
    ];
    let step = |wait, cost, want, quota| Step {
        wait,
        cost,
        want,
        settle: None,
        quota,
    };
    // The scripts count a token of a large burst in fewer units.
    for burst in [5, 50] {
        let steps = [
            step(0, 1, 4, Some(quota.burst(burst))),
            step(26, 4, 0, None),
            step(-25, 0, 0, Some(Quota::new(1, quota.window()))),
        ];
        follow(&lab, &policies, &steps).unwrap();
    }
}

#[test]
fn consecutive_requests_to_one_bucket_get_the_answers_of_requests_alone() {
    let lab = Lab::new();
    let buckets = prop::sample::select(&ALGORITHMS[..2]);
    let runs = buckets
        .prop_flat_map(|algorithm| (Just(algorithm), quota(algorithm)))
        .prop_flat_map(|(algorithm, quota)| {
            let repeated = (steps(quota), prop::collection::vec(1..20_usize, 40));
            (Just(algorithm), Just(quota), repeated)
        });
    runner(500)
        .run(&runs, |(algorithm, quota, (steps, times))| {
            let steps = steps.into_iter().zip(times).flat_map(|(step, times)| {
                // At the same time, and for no more than the cost.
                let again = Step {
                    wait: 0,
                    want: 0,
                    ..step.clone()
                };
                std::iter::once(step).chain(std::iter::repeat_n(again, times))
            });
            let steps: Vec<Step> = steps.collect();
            follow(&lab, &[(algorithm, false, quota)], &steps)
        })
        .unwrap();
}
