//! Counts, events and payments agree for random calls.

use std::sync::Arc;

use proptest::prelude::*;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_hedge_latency::{Budget, HedgeLayer, SkipReason};

use crate::support::*;

const TOKENS: u32 = 5;
const PERMITS: usize = 4;

/// A scripted call: the end and the outcome of each attempt, and the time at which the caller leaves.
#[derive(Clone, Debug)]
struct Fate {
    attempts: Vec<(u64, bool)>,
    patience: u64,
}

fn fate() -> impl Strategy<Value = Fate> {
    let attempts = prop::collection::vec((0..60_u64, any::<bool>()), 5);
    (attempts, 1..100_u64).prop_map(|(attempts, patience)| Fate { attempts, patience })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Calls that overlap, over a service with four permits and a budget of five hedges.
    #[test]
    fn counts_events_tokens_and_permits_agree(
        fates in prop::collection::vec(fate(), 1..12),
        on_failure in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (log, permits) = (Log::default(), Arc::new(Semaphore::new(PERMITS)));
            let budget = Budget::ratio(0.0).burst(TOKENS);
            let builder = HedgeLayer::builder().fixed(ms(10)).max_hedges(4);
            let builder = if on_failure { builder.hedge_on_failure(true) } else { builder };
            let layer = builder.budget(budget.clone()).observer(log.clone()).build().unwrap();
            let attempts = Arc::new(std::sync::Mutex::new(vec![0; fates.len()]));
            let (script, tried) = (Arc::new(fates.clone()), Arc::clone(&attempts));
            let inner = service_fn(move |call: usize| {
                let attempt = {
                    let mut tried = tried.lock().unwrap();
                    tried[call] += 1;
                    tried[call] - 1
                };
                let (after, good) = script[call].attempts[attempt];
                async move {
                    sleep(ms(after)).await;
                    if good { Ok(()) } else { Err("bad") }
                }
            });
            let limited = tower::limit::ConcurrencyLimit::with_semaphore(inner, Arc::clone(&permits));
            let service = layer.layer(limited);
            let calls: Vec<_> = fates
                .iter()
                .enumerate()
                .map(|(call, fate)| {
                    let (mut service, patience) = (service.clone(), ms(fate.patience));
                    tokio::spawn(async move {
                        let ready = service.ready().await.unwrap();
                        timeout(patience, ready.call(call)).await
                    })
                })
                .collect();
            let (mut failed, mut cancelled) = (0, 0);
            for call in calls {
                match call.await.unwrap() {
                    Ok(outcome) => failed += u64::from(outcome.is_err()),
                    Err(_) => cancelled += 1,
                }
            }

            let (counts, events) = (layer.handle().counts(), log.take());
            let told = |is: fn(&Event) -> bool| events.iter().filter(|event| is(event)).count() as u64;
            let sent: usize = attempts.lock().unwrap().iter().sum();
            let all = fates.len() as u64;
            assert_eq!((counts.calls, counts.failed, counts.cancelled), (all, failed, cancelled));
            assert_eq!((counts.ineligible, counts.shadowed, counts.held_back), (0, 0, 0));
            assert_eq!(counts.calls + counts.hedges, sent as u64);
            assert_eq!(told(|event| matches!(event, Started(1))), all);
            assert_eq!(told(|event| matches!(event, Started(_))), sent as u64);
            assert_eq!(told(|event| matches!(event, NoWinner)), counts.failed);
            assert_eq!(told(|event| matches!(event, Finished(_) | NoWinner)), all - cancelled);
            assert_eq!(told(|event| matches!(event, Finished(2..))), counts.hedge_wins);
            assert_eq!(told(|event| matches!(event, Cancelled)), cancelled);
            assert_eq!(told(|event| matches!(event, Skipped(_, SkipReason::Denied))), counts.denied);
            assert_eq!(told(|event| matches!(event, Skipped(_, SkipReason::NotReady))), counts.not_ready);
            assert!(counts.hedge_wins + counts.failed + counts.cancelled <= all);
            let left = std::iter::from_fn(|| budget.withdraw().map(|permit| permit.spend())).count();
            assert_eq!(left as u64 + counts.hedges, u64::from(TOKENS));
            drop(service);
            assert_eq!(permits.available_permits(), PERMITS);
        });
    }
}
