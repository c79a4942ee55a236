mod combining;
mod failing;
mod fleet;
mod racing;
mod store;

use std::{cell::Cell, time::Duration};

use tokio::time::Instant;

use self::store::{Script, Store};
use super::*;
use crate::{
    Decisions, Quota,
    backend::JointDecision,
    conformance::{Clock, Conformance, Sleeping},
};

const HOUR: Duration = Duration::from_secs(3600);

thread_local! {
    static EPOCH: Cell<Instant> = Cell::new(Instant::now() - HOUR);
}

/// Tokio's clock as a wall clock, so that a paused clock governs the backend.
fn tokio_clock() -> u64 {
    crate::algorithm::saturating_nanos(EPOCH.get().elapsed())
}

fn backend(store: &Store) -> CasBackend<Store> {
    let mut backend = CasBackend::new(store.clone());
    backend.tasks.clock = tokio_clock;
    backend
}

fn policy(limit: u64) -> Policy {
    Policy::new("p", Quota::new(limit, 30 * 24 * HOUR))
}

async fn ask(backend: &impl Backend, charge: Charge<'_>) -> Result<JointDecision, BackendError> {
    match backend.acquire(&[charge], &mut Decisions::rejected(1)) {
        Answer::Later(answer) => answer.await,
        other => panic!("{other:?}"),
    }
}

/// Tokens that are left of a key.
async fn remaining(backend: &impl Backend, policy: PolicyId) -> u64 {
    let verdict = ask(backend, Charge::new(policy, b"k", 0)).await.unwrap();
    verdict.decisions[0].remaining
}

/// A paused clock, which the kit moves.
struct Paused;

impl Clock for Paused {
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::advance(time))
    }

    fn grain(&self) -> Duration {
        Duration::ZERO
    }
}

#[tokio::test(start_paused = true)]
async fn the_backend_keeps_all_promises_exactly() {
    let fresh = || {
        // The windows of the kit's model begin when the backend is made.
        EPOCH.set(Instant::now());
        backend(&Store::default())
    };
    Conformance::new(fresh, Paused).run().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_backend_keeps_all_promises_over_a_store_that_is_slow_and_busy() {
    let store = Store::new(Script {
        delay: Duration::from_micros(300),
        lost_races: 3,
        ..Script::default()
    });
    let grain = Duration::from_millis(60);
    let kit = Conformance::new(move || backend(&store), Sleeping::new(grain));
    kit.sequences(10).run().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_value_is_kept_until_nothing_in_it_counts() {
    let store = Store::default();
    let backend = backend(&store);
    let minute = Quota::per_minute(60);
    let sets = [
        (vec![Policy::new("bucket", minute)], 2),
        (
            vec![Policy::new("log", minute).sliding_window_log()],
            60 + 61,
        ),
        (
            vec![Policy::new("long", Quota::per_hour(60)).sliding_window_log()],
            3600 + 61,
        ),
        (
            vec![
                Policy::new("a", minute),
                Policy::new("b", Quota::per_hour(60)),
            ],
            61,
        ),
    ];
    for (set, seconds) in sets {
        let ids = backend.register(&set).unwrap();
        let charges: Vec<_> = ids.iter().map(|&id| Charge::new(id, b"k", 1)).collect();
        let Answer::Later(answer) = backend.acquire(&charges, &mut Decisions::rejected(1)) else {
            panic!("a store answers later");
        };
        assert!(answer.await.unwrap().allowed);
        assert_eq!(store.last_ttl(), Duration::from_secs(seconds), "{set:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_writes_an_unused_state_and_deletes_nothing() {
    let store = Store::default();
    let backend = backend(&store);
    let id = backend.register(&[policy(1)]).unwrap()[0];
    assert!(
        ask(&backend, Charge::new(id, b"k", 1))
            .await
            .unwrap()
            .allowed
    );
    let swaps = store.swaps();
    backend.reset(id, b"k").await.unwrap();
    assert_eq!((store.swaps(), store.len()), (swaps + 1, 1));
    assert_eq!(remaining(&backend, id).await, 1);
    // An unused key has nothing to reset.
    backend.reset(id, b"other").await.unwrap();
    assert_eq!((store.swaps(), store.len()), (swaps + 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_reset_clears_the_previous_window_too() {
    let store = Store::default();
    EPOCH.set(Instant::now());
    let backend = backend(&store);
    let policy = Policy::new("p", Quota::per_minute(5)).sliding_window();
    let id = backend.register(&[policy]).unwrap()[0];
    let charge = Charge::new(id, b"k", 5);
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(ask(&backend, charge).await.unwrap().allowed);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(!ask(&backend, charge).await.unwrap().allowed);
    backend.reset(id, b"k").await.unwrap();
    assert!(ask(&backend, charge).await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn garbage_in_the_store_counts_as_unused_and_is_replaced() {
    let store = Store::default();
    let backend = backend(&store);
    let id = backend.register(&[policy(5)]).unwrap()[0];
    let charge = Charge::new(id, b"k", 1);
    for garbage in [
        &b""[..],
        b"hello",
        &[0xFF; 100],
        &[0x11, 5, 1, 2, 3],
        &[0x13, 1, 7],
    ] {
        ask(&backend, charge).await.unwrap();
        store.overwrite(garbage);
        let verdict = ask(&backend, charge).await.unwrap();
        assert_eq!(verdict.decisions[0].remaining, 4, "{garbage:?}");
        assert_eq!(remaining(&backend, id).await, 4, "{garbage:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn logs_that_would_exceed_the_largest_value_are_rejected_when_they_are_registered() {
    let store = Store::default();
    let backend = backend(&store);
    let log = |name: &str, limit| {
        Policy::new(name, Quota::new(limit, 10_000 * HOUR)).sliding_window_log()
    };
    let error = backend.register(&[log("a", 4_001)]).unwrap_err();
    assert_eq!(
        (error.policy(), error.field(), error.bound()),
        (Some("a"), "limit", "at most 4000")
    );
    let pair = [log("a", 2_000), log("b", 2_001)];
    assert_eq!(backend.register(&pair).unwrap_err().bound(), "at most 2000");
}

#[test]
fn the_largest_value_is_within_the_stated_bound() {
    let windows = (0..15)
        .map(|n| Policy::new(n.to_string(), Quota::per_hour(1_000)).sliding_window_buckets(100));
    let log =
        Policy::new("log", Quota::new(4_000, crate::arithmetic::HORIZON)).sliding_window_log();
    let policies: Vec<Policy> = windows.chain([log]).collect();
    let set = PolicySet::new("rl", &policies).unwrap();
    let mut states = set.read(&tag(b"k"), None);
    let charge = Charge::new(PolicyId::new(0), b"k", 1);
    for number in 0..4_100 {
        for state in &mut states {
            // Debts, since they are larger than any charge.
            state.settle(number * 700_000_000_000_000, &charge, i64::MAX >> 14);
        }
    }
    let length = PolicySet::write(&states).len();
    assert!((55_000..=96 * 1024).contains(&length), "{length}");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_prefix_or_timeout_is_rejected() {
    for prefix in ["", "a b", &"p".repeat(65), "ü"] {
        let backend = CasBackend::new(Store::default()).prefix(prefix);
        let error = backend.register(&[policy(1)]).unwrap_err();
        assert_eq!(error.field(), "prefix", "{prefix:?}");
    }
    let backend = CasBackend::new(Store::default()).timeout(Duration::ZERO);
    let error = backend.register(&[policy(1)]).unwrap_err();
    assert_eq!((error.field(), error.bound()), ("timeout", "above 0"));
}
