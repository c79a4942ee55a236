//! Many requests of several kinds at the same time.

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::batch::PendingReply;

/// A link to a server that takes this time to answer.
struct Load {
    link: Link,
    _lab: Arc<Lab>,
}

impl Load {
    async fn new(away: Duration) -> Arc<Self> {
        let lab = Lab::new(1);
        *lab.server.away.lock().unwrap() = away;
        let link = Link::new(None, Some(lab.connect()), PATIENCE);
        up(&link).await;
        Arc::new(Self { link, _lab: lab })
    }

    fn enqueue(
        &self,
        script: &Arc<Script>,
        slot: u16,
        key: usize,
        batching: Batching,
    ) -> PendingReply {
        let queued = QueuedCall {
            call: ScriptCall::to_one(script, &key.to_string(), 1),
            slot,
            batching,
        };
        self.link.send(queued).unwrap()
    }
}

/// The answers of the busy kind arrive without a pause.
#[tokio::test(start_paused = true)]
async fn a_busy_kind_leaves_turns_to_the_others() {
    for batching in [Batching::Together, Batching::Alone] {
        let load = Load::new(Duration::ZERO).await;
        let (busy, other) = (Script::of_five(), Script::of_five());
        let decided = Arc::new(AtomicUsize::new(0));
        let callers = (0..4).map(|key| {
            let (load, busy, decided) = (load.clone(), busy.clone(), decided.clone());
            tokio::spawn(async move {
                while decided.fetch_add(1, Relaxed) < 100_000 {
                    let pending = load.enqueue(&busy, 0, key, Batching::Together);
                    pending.await.unwrap();
                }
            })
        });
        let callers: Vec<_> = callers.collect();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        for key in 0..3 {
            let before = decided.load(Relaxed);
            let pending = load.enqueue(&other, 0, key, batching);
            pending.await.unwrap();
            let meanwhile = decided.load(Relaxed) - before;
            assert!(meanwhile < 100, "{batching:?}: {meanwhile} decisions");
        }
        callers.iter().for_each(|caller| caller.abort());
    }
}

/// Otherwise, on a busy runtime, the last of many callers would wait for as many turns of all tasks as there are calls.
#[tokio::test(start_paused = true)]
async fn the_callers_of_small_calls_share_a_turn_of_the_runtime() {
    let load = Load::new(Duration::from_millis(20)).await;
    let (script, turns) = (Script::of_five(), Arc::new(AtomicUsize::new(0)));
    let callers = (0..200).map(|slot| {
        let pending = load.enqueue(&script, slot, 0, Batching::Together);
        let turns = Arc::clone(&turns);
        tokio::spawn(async move {
            pending.await.unwrap();
            turns.load(Relaxed)
        })
    });
    let callers: Vec<_> = callers.collect();
    sleep(Duration::from_millis(1)).await;
    let counting = tokio::spawn(async move {
        sleep(Duration::from_millis(19)).await;
        loop {
            turns.fetch_add(1, Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let mut ended = Vec::new();
    for caller in callers {
        ended.push(caller.await.unwrap());
    }
    counting.abort();
    let (first, last) = (ended.iter().min().unwrap(), ended.iter().max().unwrap());
    assert!(last - first < 20, "{first} to {last}");
}

#[tokio::test(start_paused = true)]
async fn one_request_per_millisecond_to_a_distant_server_does_not_wait_for_earlier_calls() {
    for away in [20, 50, 100, 200].map(Duration::from_millis) {
        let load = Load::new(away).await;
        let (script, mut callers) = (Script::of_five(), Vec::new());
        for key in 0..1_000 {
            let pending = load.enqueue(&script, 0, key, Batching::Together);
            let began = Instant::now();
            callers.push(tokio::spawn(async move {
                pending.await.unwrap();
                began.elapsed()
            }));
            sleep(Duration::from_millis(1)).await;
        }
        for caller in callers {
            let more = caller.await.unwrap() - away;
            assert!(more <= Duration::from_millis(5), "{away:?}: {more:?} more");
        }
    }
}
