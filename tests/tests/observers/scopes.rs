//! The scopes in which attempts run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tower::{Layer, ServiceExt};
use tower_hedge_latency::{Attempt, AttemptScope, CallInfo, Observer};

use crate::events::Log;
use crate::{Step, backend, get, hedge, retry};

/// Counts the entries into the scopes of attempts.
#[derive(Clone, Default)]
struct Entries(Arc<AtomicU32>);

impl Observer for Entries {
    fn attempt_scope(&self, _: &CallInfo, _: Attempt) -> Option<AttemptScope> {
        let entries = Arc::clone(&self.0);
        Some(Box::new(move |run| {
            entries.fetch_add(1, Relaxed);
            run();
        }))
    }
}

/// Has scopes that never run the attempt.
struct Idle;

impl Observer for Idle {
    fn attempt_scope(&self, _: &CallInfo, _: Attempt) -> Option<AttemptScope> {
        Some(Box::new(|_| {}))
    }
}

#[tokio::test(start_paused = true)]
async fn a_pair_of_observers_receives_each_event_twice_and_enters_both_scopes() {
    let (log, entries) = (Log::default(), Entries::default());
    let shared: Arc<dyn Observer> = Arc::new((log.clone(), log.clone()));
    let observer = ((entries.clone(), shared), entries.clone());
    let steps: &[Step] = &[(5, Ok(503)), (5, Ok(200))];
    let service = retry(observer).build().unwrap().layer(backend(steps));
    service.oneshot(get()).await.unwrap();
    let lines = log.take();
    assert_eq!(lines.len(), 12);
    assert!(lines.chunks(2).all(|pair| pair[0] == pair[1]), "{lines:?}");
    // Two scopes for each of two attempts: the call of the service, two polls, and the event of the end.
    assert_eq!(entries.0.load(Relaxed), 2 * 2 * 4);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_runs_even_if_its_scope_does_not_run_it() {
    let steps: &[Step] = &[(5, Ok(200))];
    let service = hedge(Idle).build().unwrap().layer(backend(steps));
    assert_eq!(service.oneshot(get()).await.unwrap().status(), 200);
}
