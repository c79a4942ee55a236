//! Stores that fail.

use super::{store::Fault, *};

fn faulty(loads: Fault, swaps: Fault) -> Script {
    Script {
        loads,
        swaps,
        ..Script::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_load_charges_nothing() {
    let store = Store::new(faulty(Fault::Error, Fault::None));
    let backend = backend(&store);
    let id = backend.register(&[policy(5)]).unwrap()[0];
    let error = ask(&backend, Charge::new(id, b"k", 1)).await.unwrap_err();
    assert!(
        error.to_string().ends_with("did not decide: out of order"),
        "{error}"
    );
    store.follow(Script::default());
    assert_eq!(remaining(&backend, id).await, 5);
}

/// Its outcome is unknown: retried, one charge could take two tokens.
#[tokio::test(start_paused = true)]
async fn a_failed_swap_is_not_retried_and_counts_as_charged() {
    let store = Store::new(faulty(Fault::None, Fault::LostResponse));
    let backend = backend(&store);
    let id = backend.register(&[policy(5)]).unwrap()[0];
    assert!(ask(&backend, Charge::new(id, b"k", 2)).await.is_err());
    assert_eq!(store.swaps(), 1);
    store.follow(Script::default());
    assert_eq!(remaining(&backend, id).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_fails_its_callers_in_time_and_later_ones_are_decided() {
    for script in [
        faulty(Fault::Hang, Fault::None),
        faulty(Fault::None, Fault::Hang),
    ] {
        let store = Store::new(script);
        let backend = backend(&store).timeout(Duration::from_millis(200));
        let id = backend.register(&[policy(5)]).unwrap()[0];
        let began = Instant::now();
        let error = ask(&backend, Charge::new(id, b"k", 1)).await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert_eq!(began.elapsed(), Duration::from_millis(200));
        store.follow(Script::default());
        assert!(
            ask(&backend, Charge::new(id, b"k", 1))
                .await
                .unwrap()
                .allowed
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_fails_its_callers_and_not_the_key() {
    for script in [
        faulty(Fault::Panic, Fault::None),
        faulty(Fault::None, Fault::Panic),
    ] {
        let store = Store::new(script);
        let backend = backend(&store);
        let id = backend.register(&[policy(5)]).unwrap()[0];
        assert!(ask(&backend, Charge::new(id, b"k", 1)).await.is_err());
        store.follow(Script::default());
        assert!(
            ask(&backend, Charge::new(id, b"k", 1))
                .await
                .unwrap()
                .allowed
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_charge_that_loses_every_race_fails_at_its_timeout_and_is_not_charged() {
    let store = Store::new(Script {
        lost_races: u64::MAX - 1,
        ..Script::default()
    });
    let backend = backend(&store);
    let id = backend.register(&[policy(5)]).unwrap()[0];
    let began = Instant::now();
    let error = ask(&backend, Charge::new(id, b"k", 1)).await.unwrap_err();
    let waited = began.elapsed();
    // Up to the last pause longer than the timeout.
    let (timeout, late) = (Duration::from_millis(500), Duration::from_millis(508));
    assert!((timeout..=late).contains(&waited), "{waited:?}");
    assert!(
        error.to_string().contains("others changed the key"),
        "{error}"
    );
    // The pauses bound the load on the store.
    assert!((60..2_000).contains(&store.swaps()), "{}", store.swaps());
    store.follow(Script::default());
    assert_eq!(remaining(&backend, id).await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_retry_ends_with_its_caller() {
    let store = Store::new(Script {
        lost_races: u64::MAX - 1,
        ..Script::default()
    });
    let backend = backend(&store);
    let id = backend.register(&[policy(5)]).unwrap()[0];
    let asked = ask(&backend, Charge::new(id, b"k", 1));
    assert!(
        tokio::time::timeout(Duration::from_millis(50), asked)
            .await
            .is_err()
    );
    tokio::time::sleep(Duration::from_millis(8)).await;
    let swaps = store.swaps();
    tokio::time::sleep(HOUR).await;
    assert_eq!(store.swaps(), swaps);
    assert!(backend.tasks.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_request_with_two_keys_of_which_one_is_exhausted_takes_no_tokens() {
    let store = Store::default();
    let backend = backend(&store);
    let ids = backend
        .register(&[policy(5), Policy::new("q", Quota::per_hour(1))])
        .unwrap();
    let charges = [Charge::new(ids[0], b"k", 1), Charge::new(ids[1], b"l", 1)];
    for expected in [true, false] {
        let Answer::Later(answer) = backend.acquire(&charges, &mut Decisions::rejected(2)) else {
            panic!("a store answers later");
        };
        assert_eq!(answer.await.unwrap().allowed, expected);
    }
    backend.finish_corrections(HOUR).await.unwrap();
    assert_eq!(remaining(&backend, ids[0]).await, 4);
    assert_eq!(backend.lost_corrections(), 0);
}

/// A refund that fails is counted: its tokens stay charged.
#[tokio::test(start_paused = true)]
async fn a_refund_whose_swap_fails_is_counted() {
    let store = Store::default();
    let backend = backend(&store);
    let id = backend.register(&[policy(5)]).unwrap()[0];
    ask(&backend, Charge::new(id, b"k", 2)).await.unwrap();
    store.follow(faulty(Fault::None, Fault::Error));
    let Answer::Later(settled) = backend.settle(&[Charge::new(id, b"k", 2)], -2) else {
        panic!("a store answers later");
    };
    assert!(settled.await.is_err());
    store.follow(Script::default());
    assert_eq!(
        (backend.lost_corrections(), remaining(&backend, id).await),
        (1, 3)
    );
}

#[test]
fn a_backend_whose_runtime_has_ended_fails_immediately() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    let first = runtime();
    let backend = first.block_on(async { CasBackend::new(Store::default()) });
    drop(first);
    let id = backend.register(&[policy(5)]).unwrap()[0];
    for _ in 0..2 {
        let asked = ask(&backend, Charge::new(id, b"k", 1));
        let error = runtime().block_on(asked).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("the runtime that it was made on has ended"),
            "{error}"
        );
    }
}
