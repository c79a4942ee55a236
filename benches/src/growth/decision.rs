use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tower::{Layer, ServiceExt};
use tower_dist_ratelimit::{CallLimitLayer, Limiter, Policy, Quota, backend::Memory};

use crate::limit::{Many, check, limiter, name, plenty};
use crate::measure::{Case, Figure, Subject, time_of};

const KEYS: [(&str, u32); 5] = [
    ("1 k", 1_000),
    ("10 k", 10_000),
    ("100 k", 100_000),
    ("1 M", 1_000_000),
    ("10 M", 10_000_000),
];

const POLICIES: [(&str, usize); 4] = [("1", 1), ("2", 2), ("4", 4), ("8", 8)];

const WAITING: [(&str, u32); 5] = [
    ("1", 1),
    ("10", 10),
    ("100", 100),
    ("1 k", 1_000),
    ("10 k", 10_000),
];

/// A test has no time for the large sizes.
const MOST: u32 = if cfg!(test) { 1_000 } else { 10_000_000 };

/// One token bucket, with known keys in turn.
pub(super) fn by_keys() -> Case {
    let sizes = KEYS.into_iter().filter(|&(_, keys)| keys <= MOST);
    let subjects = sizes.map(|(subject, keys)| {
        // Built at its first use, because that takes seconds.
        let mut many = None;
        Subject::looping(subject, move |calls| {
            let make = || {
                Many::new(keys, limiter(keys), |limiter: &Limiter, key| {
                    check(limiter, key)
                })
            };
            let many = many.get_or_insert_with(make);
            for _ in 0..calls {
                let (limiter, key) = many.next();
                check(black_box(limiter), black_box(key));
            }
        })
    });
    Case::new("growth, keys", Figure::Access, subjects.collect())
}

/// One decision on several token buckets of a hot key.
pub(super) fn by_policies() -> Case {
    let subjects = POLICIES.map(|(subject, count)| {
        let policy = |number: usize| Policy::new(format!("policy-{number}"), plenty());
        let builder = Limiter::builder(Memory::default(), policy(0));
        let builder = (1..count).fold(builder, |builder, number| builder.limit(policy(number)));
        let (limiter, key) = (builder.build().expect("valid"), name(42));
        Subject::looping(subject, move |calls| {
            for _ in 0..calls {
                check(black_box(&limiter), black_box(&key));
            }
        })
    });
    Case::new("growth, policies", Figure::Access, subjects.into())
}

/// A throttle with this number of waiting calls, from the calls' arrival until the last is admitted, divided by their
/// number. The clock is paused, so that waiting takes no time.
pub(super) fn by_waiting() -> Case {
    let sizes = WAITING.into_iter().filter(|&(_, waiting)| waiting <= MOST);
    let subjects = sizes.map(|(subject, waiting)| {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        let runtime = Arc::new(runtime.expect("no more than a timer"));
        let policy = Policy::new("all", Quota::per_second(1_000).burst(1));
        let layer = CallLimitLayer::builder(Memory::default()).limit(policy);
        let layer = layer
            .waiting()
            .max_wait(Duration::from_secs(60))
            .max_waiters(10_000);
        let layer = layer.build().expect("valid");
        Subject::timing(subject, move |calls| {
            let throttle = layer.layer(tower::service_fn(|n: u64| async move {
                Ok::<u64, std::convert::Infallible>(n)
            }));
            let rounds = calls.div_ceil(waiting);
            let took = time_of(|| {
                for _ in 0..rounds {
                    runtime.block_on(async {
                        let calls: Vec<_> = (0..waiting)
                            .map(|n| tokio::spawn(throttle.clone().oneshot(n.into())))
                            .collect();
                        for call in calls {
                            let admitted = call.await.is_ok_and(|answer| answer.is_ok());
                            assert!(admitted, "a call was rejected");
                        }
                    });
                }
            });
            // The share of `calls`, because every round has all its calls.
            took * calls / (rounds * waiting)
        })
    });
    Case::new("growth, waiting calls", Figure::Access, subjects.collect())
}
