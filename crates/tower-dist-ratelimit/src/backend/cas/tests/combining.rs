//! Concurrent charges to one key in one process.

use tokio::task::yield_now;

use super::*;
use crate::{Algorithm, arithmetic::Limit};

/// Starts this many charges of one token, which are in flight when this returns.
fn charges(
    backend: &CasBackend<Store>,
    id: PolicyId,
    count: u64,
) -> Vec<BoxFuture<'static, Result<JointDecision, BackendError>>> {
    let start = |_| match backend.acquire(&[Charge::new(id, b"k", 1)], &mut []) {
        Answer::Later(answer) => answer,
        other => panic!("{other:?}"),
    };
    (0..count).map(start).collect()
}

#[tokio::test(start_paused = true)]
async fn concurrent_charges_to_a_key_are_decided_by_one_load_and_one_swap() {
    let store = Store::default();
    let backend = backend(&store);
    let id = backend.register(&[policy(100)]).unwrap()[0];
    let mut allowed = 0;
    for answer in charges(&backend, id, 150) {
        allowed += u64::from(answer.await.unwrap().allowed);
    }
    assert_eq!((allowed, store.loads(), store.swaps()), (100, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn charges_that_arrive_during_a_swap_are_decided_by_the_next_one() {
    let delay = Duration::from_millis(1);
    let store = Store::new(Script {
        delay,
        ..Script::default()
    });
    let backend = backend(&store);
    let id = backend.register(&[policy(100)]).unwrap()[0];
    let first = charges(&backend, id, 10);
    tokio::time::sleep(delay * 3 / 2).await;
    let second = charges(&backend, id, 10);
    for answer in first.into_iter().chain(second) {
        assert!(answer.await.unwrap().allowed);
    }
    assert_eq!((store.loads(), store.swaps()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_rejection_writes_nothing() {
    let store = Store::default();
    let backend = backend(&store);
    let id = backend.register(&[policy(1)]).unwrap()[0];
    for answer in charges(&backend, id, 1)
        .into_iter()
        .chain(charges(&backend, id, 9))
    {
        answer.await.unwrap();
    }
    let swaps = store.swaps();
    assert!(
        !ask(&backend, Charge::new(id, b"k", 1))
            .await
            .unwrap()
            .allowed
    );
    assert_eq!(remaining(&backend, id).await, 0);
    assert_eq!(store.swaps(), swaps);
}

#[tokio::test(start_paused = true)]
async fn callers_that_leave_take_no_tokens_and_do_not_affect_the_others_of_their_batch() {
    let delay = Duration::from_millis(2);
    let store = Store::new(Script {
        delay,
        ..Script::default()
    });
    let backend = backend(&store);
    let id = backend.register(&[policy(100)]).unwrap()[0];
    let mut all = charges(&backend, id, 20);
    tokio::time::sleep(delay / 2).await;
    // During the load: the first caller, whose charge started the task, and others.
    drop(all.drain(..5));
    // During the swap: their charges are made.
    tokio::time::sleep(delay).await;
    drop(all.drain(..5));
    assert_eq!(all.len(), 10);
    for answer in all {
        assert!(answer.await.unwrap().allowed);
    }
    assert_eq!(remaining(&backend, id).await, 85);
    assert_eq!(store.swaps(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_without_waiting_charges_takes_no_memory() {
    let backend = backend(&Store::default());
    let id = backend.register(&[policy(100)]).unwrap()[0];
    for key in 0..100_u8 {
        ask(&backend, Charge::new(id, &[key], 1)).await.unwrap();
    }
    yield_now().await;
    assert!(backend.tasks.is_idle());
}

#[tokio::test(start_paused = true)]
async fn charges_above_the_bound_fail_and_are_not_queued() {
    let store = Store::new(Script {
        loads: store::Fault::Hang,
        ..Script::default()
    });
    let backend = backend(&store);
    let id = backend.register(&[policy(100_000)]).unwrap()[0];
    let waiting = charges(&backend, id, 8192);
    let Answer::Failed(error) = backend.acquire(&[Charge::new(id, b"k", 1)], &mut []) else {
        panic!("one charge too many");
    };
    assert!(
        error.to_string().contains("8192 charges wait already"),
        "{error}"
    );
    drop(waiting);
    tokio::time::sleep(Duration::from_millis(501)).await;
    store.follow(Script::default());
    assert!(
        ask(&backend, Charge::new(id, b"k", 1))
            .await
            .unwrap()
            .allowed
    );
}

#[tokio::test(start_paused = true)]
async fn charges_that_lost_a_race_are_decided_before_those_that_arrived_later() {
    let delay = Duration::from_millis(2);
    let store = Store::new(Script {
        delay,
        lost_races: 1,
        ..Script::default()
    });
    let backend = backend(&store);
    let id = backend.register(&[policy(3)]).unwrap()[0];
    let first = charges(&backend, id, 2);
    // During the swap that will fail.
    tokio::time::sleep(delay * 3 / 2).await;
    let second = charges(&backend, id, 2);
    let mut allowed = Vec::new();
    for answer in first.into_iter().chain(second) {
        allowed.push(answer.await.unwrap().allowed);
    }
    assert_eq!(allowed, [true, true, true, false]);
}

#[tokio::test(start_paused = true)]
async fn charges_of_one_swap_with_different_quotas_are_decided_one_after_the_other() {
    let store = Store::default();
    let backend = backend(&store);
    let quota = Quota::per_minute(10);
    let id = backend
        .register(&[Policy::new("p", quota).dynamic_quotas()])
        .unwrap()[0];
    let charge = |cost, limit: u64| Charge::new(id, b"k", cost).quota(Quota::per_hour(limit));
    // The limit falls, is zero, and rises again.
    let charges = [
        charge(4, 10),
        charge(1, 6),
        charge(2, 6),
        charge(1, 0),
        charge(1, 5),
        Charge::new(id, b"k", 3),
        charge(9, 20),
    ];
    let answers = charges.map(|charge| match backend.acquire(&[charge], &mut []) {
        Answer::Later(answer) => answer,
        other => panic!("{other:?}"),
    });
    let limit = Limit::new(Algorithm::TokenBucket, quota).unwrap();
    let mut state = limit.unused(0);
    let mut allowed = Vec::new();
    for (charge, answer) in charges.iter().zip(answers) {
        let decision = answer.await.unwrap().decisions[0];
        assert_eq!(decision, state.charge(tokio_clock(), charge), "{charge:?}");
        allowed.push(decision.allowed);
    }
    assert!(
        allowed.contains(&true) && allowed.contains(&false),
        "{allowed:?}"
    );
    assert_eq!((store.loads(), store.swaps()), (1, 1));
}
