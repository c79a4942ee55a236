//! Decisions without a layer, through each library's own API, on a key that is a `String`.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use governor::DefaultKeyedRateLimiter;
use tokio::time::Instant;
use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};

use super::floor::{CLOCK, FLOOR, Floor};
use super::{KEYS, governors_plenty, plenty, together::together};
use crate::measure::{Case, Figure, Subject};
use crate::report::OURS;

pub(crate) const HOT: &str = "decision, 1 hot String key";
const PROCESSOR: &str = "decision, 1 hot String key, processor clock";
pub(crate) const MANY: &str = "decision, 1 M String keys";
const ALGORITHMS: &str = "decision, 1 hot String key, by algorithm";
const TOGETHER: &str = "decision, 2 threads, 1 hot String key";
pub(crate) const RESIDENT: &str = "resident bytes per String key";

pub(super) const GOVERNOR: &str = "governor";

/// The number of keys in the case of many keys: too many for the caches.
const MANY_KEYS: u32 = if cfg!(test) { 10_000 } else { 1_000_000 };

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            HOT,
            Figure::Call,
            vec![ours_hot(), governor_hot(), floor_hot(), clock()],
        ),
        Case::new(
            PROCESSOR,
            Figure::Call,
            vec![
                ours_processor(),
                governor_hot().goal(0.8),
                floor_processor(),
            ],
        ),
        Case::new(ALGORITHMS, Figure::Call, by_algorithm()),
        Case::new(
            MANY,
            Figure::Access,
            vec![ours_many(), governor_many().goal(0.4), floor_many()],
        ),
        Case::new(
            TOGETHER,
            Figure::Throughput,
            vec![
                ours_together(),
                governor_together().goal(0.5),
                floor_together(),
            ],
        ),
        Case::new(
            RESIDENT,
            Figure::Key,
            vec![ours_resident(), governor_resident().goal(0.4)],
        ),
    ]
}

pub(crate) fn limiter(capacity: u32) -> Limiter {
    limiter_of(Policy::new("per-client", plenty()), capacity)
}

fn limiter_of(policy: Policy, capacity: u32) -> Limiter {
    let capacity = usize::try_from(capacity).expect("at least 32 bits");
    Limiter::new(Memory::with_capacity(capacity), policy).expect("valid")
}

fn governor() -> DefaultKeyedRateLimiter<String> {
    DefaultKeyedRateLimiter::keyed(governors_plenty())
}

/// A name as long as an API key.
pub(crate) fn name(number: u32) -> String {
    format!("client-{number:08}")
}

pub(crate) fn check(limiter: &Limiter, key: &str) {
    assert!(decide(limiter, key), "refused");
}

/// Whether our limiter allows the key; decided in the first poll, because the backend is memory.
pub(super) fn decide(limiter: &Limiter, key: &str) -> bool {
    let decision = pin!(limiter.check(key)).poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Ok(decision)) = black_box(&decision) else {
        panic!("no decision");
    };
    decision.allowed
}

/// As a user writes it for `String` keys.
fn check_governor(limiter: &DefaultKeyedRateLimiter<String>, key: &String) {
    assert!(black_box(&limiter.check_key(key)).is_ok(), "refused");
}

fn ours_hot() -> Subject {
    hot(OURS, Policy::new("per-client", plenty()))
}

fn ours_processor() -> Subject {
    let memory = Memory::with_processor_clock(100_000);
    let policy = Policy::new("per-client", plenty());
    hot_limiter(OURS, Limiter::new(memory, policy).expect("valid"))
}

fn hot(subject: &'static str, policy: Policy) -> Subject {
    hot_limiter(subject, limiter_of(policy, KEYS))
}

fn hot_limiter(subject: &'static str, limiter: Limiter) -> Subject {
    let key = name(42);
    Subject::looping(subject, move |calls| {
        for _ in 0..calls {
            check(black_box(&limiter), black_box(&key));
        }
    })
}

/// The algorithms; `ours` is a token bucket.
fn by_algorithm() -> Vec<Subject> {
    let policy = || Policy::new("per-client", plenty());
    // A short window, so that no request is rejected: the log keeps the last 0.1 ms, which is about a thousand tokens.
    let log = Policy::new("per-client", Quota::new(10_000, Duration::from_micros(100)));
    vec![
        ours_hot(),
        governor_hot(),
        hot("leaky queue", policy().leaky_queue(Duration::from_secs(60))),
        hot("fixed window", policy().fixed_window()),
        hot("first hit", policy().fixed_window_from_first_request()),
        hot("two windows", policy().sliding_window()),
        hot("4 sub-windows", policy().sliding_window_buckets(4)),
        hot("60 sub-windows", policy().sliding_window_buckets(60)),
        hot("sliding log", log.sliding_window_log()),
        hot("dynamic bucket", policy().dynamic_quotas()),
    ]
}

fn governor_hot() -> Subject {
    let (limiter, key) = (governor(), name(42));
    Subject::looping(GOVERNOR, move |calls| {
        for _ in 0..calls {
            check_governor(black_box(&limiter), black_box(&key));
        }
    })
}

fn floor_hot() -> Subject {
    let (floor, key) = (Floor::plenty(KEYS), name(42));
    Subject::looping(FLOOR, move |calls| {
        for _ in 0..calls {
            charge(black_box(&floor), black_box(&key));
        }
    })
}

fn charge(floor: &Floor, key: &String) {
    assert!(black_box(&floor.charge(key)).allowed, "refused");
}

fn floor_processor() -> Subject {
    let (floor, key, clock) = (Floor::plenty(KEYS), name(42), quanta::Clock::new());
    let created = clock.raw();
    Subject::looping(FLOOR, move |calls| {
        for _ in 0..calls {
            let now = || clock.delta_as_nanos(created, clock.raw());
            let charged = black_box(&floor).charge_by(black_box(&key), now);
            assert!(black_box(&charged).allowed, "refused");
        }
    })
}

/// Only reads the clock.
fn clock() -> Subject {
    Subject::looping(CLOCK, |calls| {
        for _ in 0..calls {
            black_box(Instant::now());
        }
    })
}

fn ours_together() -> Subject {
    let shared = Arc::new((limiter(KEYS), name(42)));
    together(OURS, move |calls| {
        for _ in 0..calls {
            check(black_box(&shared.0), black_box(&shared.1));
        }
    })
}

fn governor_together() -> Subject {
    let shared = Arc::new((governor(), name(42)));
    together(GOVERNOR, move |calls| {
        for _ in 0..calls {
            check_governor(black_box(&shared.0), black_box(&shared.1));
        }
    })
}

fn floor_together() -> Subject {
    let shared = Arc::new((Floor::plenty(KEYS), name(42)));
    together(FLOOR, move |calls| {
        for _ in 0..calls {
            charge(black_box(&shared.0), black_box(&shared.1));
        }
    })
}

/// Many known keys in turn: the key itself is in the cache, and its state is not.
pub(crate) struct Many<L> {
    limiter: L,
    names: Vec<String>,
    next: usize,
}

impl<L> Many<L> {
    pub(crate) fn new(keys: u32, limiter: L, check: fn(&L, &String)) -> Self {
        let names: Vec<String> = (0..keys).map(name).collect();
        // Inserts keys in another order than the order of use, because the allocator would otherwise place them in that
        // order. The step is a prime that does not divide the number of keys, so it reaches each key.
        let count = names.len();
        (0..count).for_each(|turn| check(&limiter, &names[turn * 618_041 % count]));
        let next = 0;
        Self {
            limiter,
            names,
            next,
        }
    }

    pub(crate) fn next(&mut self) -> (&L, &String) {
        self.next = (self.next + 1) % self.names.len();
        (&self.limiter, &self.names[self.next])
    }
}

fn ours_many() -> Subject {
    // Built at its first use, because that takes a second.
    let mut many = None;
    Subject::looping(OURS, move |calls| {
        let make = || {
            Many::new(MANY_KEYS, limiter(MANY_KEYS), |limiter, key| {
                check(limiter, key)
            })
        };
        let many = many.get_or_insert_with(make);
        for _ in 0..calls {
            let (limiter, key) = many.next();
            check(black_box(limiter), black_box(key));
        }
    })
}

fn governor_many() -> Subject {
    let mut many = None;
    Subject::looping(GOVERNOR, move |calls| {
        let many = many.get_or_insert_with(|| Many::new(MANY_KEYS, governor(), check_governor));
        for _ in 0..calls {
            let (limiter, key) = many.next();
            check_governor(black_box(limiter), black_box(key));
        }
    })
}

fn floor_many() -> Subject {
    let mut many = None;
    Subject::looping(FLOOR, move |calls| {
        let make = || {
            Many::new(MANY_KEYS, Floor::plenty(MANY_KEYS), |floor, key| {
                charge(floor, key)
            })
        };
        let many = many.get_or_insert_with(make);
        for _ in 0..calls {
            let (floor, key) = many.next();
            charge(black_box(floor), black_box(key));
        }
    })
}

/// As many keys as calls, and a table with room for exactly these keys.
fn ours_resident() -> Subject {
    let mut kept = None;
    Subject::looping(OURS, move |keys| {
        let limiter = kept.insert(limiter(keys));
        (0..keys).for_each(|number| check(limiter, &name(number)));
    })
}

fn governor_resident() -> Subject {
    let mut kept = None;
    Subject::looping(GOVERNOR, move |keys| {
        let limiter = kept.insert(governor());
        (0..keys).for_each(|number| check_governor(limiter, &name(number)));
    })
}
