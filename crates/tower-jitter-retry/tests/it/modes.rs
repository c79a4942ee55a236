//! Changes of the mode: off, shadow and on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_test::{assert_pending, assert_ready_err};
use tower::{Layer, ServiceExt, service_fn};
use tower_jitter_retry::{Budget, DelaySource, Mode, StopReason};

use crate::support::Event::{Shadowed, Started, Stopped};
use crate::support::{BoxError, Log, builder, call, fail, ms};

#[tokio::test(start_paused = true)]
async fn off_returns_the_first_outcome() {
    let log = Log::default();
    let layer = builder().observer(log.clone()).mode(Mode::Off);
    let (mut call, mut handle) = call!(layer.build().unwrap());
    assert_pending!(call.poll());
    fail(&mut handle).await;
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "failed");
    assert_eq!(log.take(), [Started(1), Stopped(1, StopReason::Off)]);
}

#[tokio::test(start_paused = true)]
async fn shadow_mode_reports_retries_and_sends_none() {
    let log = Log::default();
    let budget = Budget::ratio(0.0).burst(1);
    let layer = builder()
        .observer(log.clone())
        .mode(Mode::Shadow)
        .budget(budget);
    let layer = layer.build().unwrap();

    for expected in [
        &[
            Started(1),
            Shadowed(1, ms(100), DelaySource::Backoff),
            Stopped(1, StopReason::Shadow),
        ][..],
        &[Started(1), Stopped(1, StopReason::BudgetExhausted)],
    ] {
        let (mut call, mut handle) = call!(layer.clone());
        assert_pending!(call.poll());
        fail(&mut handle).await;
        assert_eq!(assert_ready_err!(call.poll()).to_string(), "failed");
        assert_eq!(log.take(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_switches_every_service_of_its_layer() {
    let layer = builder().build().unwrap();
    let handle = layer.handle();
    let sent = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&sent);
    let service = layer.layer(service_fn(move |(): ()| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Err::<(), BoxError>("failed".into()) }
    }));
    for (mode, attempts) in [(Mode::Off, 1), (Mode::Shadow, 1), (Mode::On, 3)] {
        handle.set_mode(mode);
        service.clone().oneshot(()).await.unwrap_err();
        assert_eq!(sent.swap(0, Ordering::Relaxed), attempts, "{mode:?}");
    }
}

/// A request that counts its clones.
struct Counted(Arc<AtomicU32>);

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.0.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

#[tokio::test(start_paused = true)]
async fn neither_off_nor_shadow_copies_a_request() {
    let copies = Arc::new(AtomicU32::new(0));
    let answer = service_fn(|_: Counted| async { Ok::<_, BoxError>(()) });
    for (mode, expected) in [(Mode::Off, 0), (Mode::Shadow, 0), (Mode::On, 1)] {
        let layer = builder().mode(mode).build().unwrap();
        layer
            .layer(answer)
            .oneshot(Counted(Arc::clone(&copies)))
            .await
            .unwrap();
        assert_eq!(copies.swap(0, Ordering::Relaxed), expected, "{mode:?}");
    }
}
