//! The grouping of requests into calls, their timing and their answers, without a server.

mod bounds;

use std::{task::Poll, time::Duration};

use tokio::time::advance;
use tokio_test::task::{Spawn, spawn};

use super::{
    queue::{CALLS, FREE_CALLS},
    *,
};
use crate::{
    arguments::row_answers, batch::MOST_ROWS, call::ScriptCall, reply::Replies, script::Script,
};

/// A send queue with a connection, and a policy with a bucket of five tokens.
struct Lab {
    send_queue: SendQueue,
    script: Arc<Script>,
}

impl Lab {
    fn new() -> Self {
        let send_queue = SendQueue::new(Arc::new(Health::up()));
        send_queue.open();
        Self {
            send_queue,
            script: Script::of_five(),
        }
    }

    fn queued(&self, key: &str, batching: Batching) -> QueuedCall {
        let call = ScriptCall::to_one(&self.script, key, 1);
        QueuedCall {
            call,
            slot: 0,
            batching,
        }
    }

    fn enqueue(&self, key: &str) -> PendingReply {
        self.send_queue
            .enqueue(self.queued(key, Batching::Together))
            .unwrap()
    }

    /// Returns the calls that the task would send.
    fn take(&self) -> Vec<DueCall> {
        let mut due_calls = Vec::new();
        self.send_queue.take(&mut due_calls);
        due_calls
    }

    /// Returns the calls that the task would send after a call has ended, if no other call has ended.
    fn ended(&self, kind: Option<Kind>) -> Vec<DueCall> {
        let mut due_calls = Vec::new();
        self.send_queue.ended(kind.unwrap(), &mut due_calls);
        due_calls.append(&mut self.take());
        due_calls
    }

    /// Sends as many calls as go without a wait, and leaves them in flight. Returns the last one.
    fn busy(&self) -> DueCall {
        drop(self.enqueue("busy"));
        let calls = (0..FREE_CALLS).map(|_| {
            let _pending = self.enqueue("busy");
            let mut due_calls = self.take();
            assert_eq!(due_calls.len(), 1);
            due_calls.remove(0)
        });
        calls.last().unwrap()
    }
}

/// Answers the rows of a call as a server does whose buckets are all full.
async fn answer(due_call: DueCall) {
    let rows = due_call.batch.rows.0.iter();
    let numbers = rows.flat_map(|row| match row.times {
        1 => vec![4, 200_000],
        _ => vec![0],
    });
    let row_answers = row_answers(&due_call.batch.rows, &numbers.collect::<Vec<_>>());
    due_call.batch.answer(Ok(row_answers.unwrap())).await;
}

async fn left(pending: PendingReply) -> i64 {
    let replies: Replies = pending.await.unwrap();
    if replies[0].granted < 0 {
        -1
    } else {
        replies[0].remaining
    }
}

/// Returns the number of requests in each row.
fn rows(due_call: &DueCall) -> Vec<usize> {
    let rows = &due_call.batch.rows.0;
    rows.iter().map(|row| row.times).collect()
}

#[tokio::test(start_paused = true)]
async fn two_calls_go_immediately_and_further_requests_go_together() {
    let lab = Lab::new();
    let first = lab.enqueue("a");
    let sent = lab.take().remove(0);
    let second = lab.enqueue("b");
    assert_eq!(lab.take().iter().map(rows).collect::<Vec<_>>(), [[1]]);
    drop(second);
    let others = [lab.enqueue("a"), lab.enqueue("b"), lab.enqueue("b")];
    assert!(lab.take().is_empty(), "two calls are in flight");
    let kind = sent.kind;
    answer(sent).await;
    assert_eq!(left(first).await, 4);
    let mut due_calls = lab.ended(kind);
    assert_eq!(due_calls.iter().map(rows).collect::<Vec<_>>(), [[1, 2]]);
    answer(due_calls.remove(0)).await;
    let [a, b, again] = others.map(left);
    assert_eq!((a.await, b.await, again.await), (4, 4, 3));
}

#[tokio::test(start_paused = true)]
async fn few_requests_share_a_call_after_calls_that_ended_together() {
    let lab = Lab::new();
    let kind = lab.busy().kind.unwrap();
    let mut due_calls = Vec::new();
    let _first = lab.enqueue("a");
    lab.send_queue.ended(kind, &mut due_calls);
    assert!(due_calls.is_empty(), "another call may have ended, too");
    let _second = lab.enqueue("b");
    lab.send_queue.ended(kind, &mut due_calls);
    assert_eq!(due_calls.iter().map(rows).collect::<Vec<_>>(), [[1, 1]]);
    assert!(lab.take().is_empty());
}

/// The server decides on the next requests of the first half while the second half runs.
#[tokio::test(start_paused = true)]
async fn the_callers_of_a_full_call_are_woken_in_halves() {
    for is_dropped in [false, true] {
        let lab = Lab::new();
        let mut callers = (0..256)
            .map(|_| spawn(lab.enqueue("hot")))
            .collect::<Vec<_>>();
        assert!(callers.iter_mut().all(|caller| caller.poll().is_pending()));
        let mut answer = spawn(answer(lab.take().remove(0)));
        let is_woken = |callers: &[Spawn<PendingReply>]| -> Vec<bool> {
            callers.iter().map(|caller| caller.is_woken()).collect()
        };
        assert!(answer.poll().is_pending());
        assert_eq!(is_woken(&callers), [[true; 128], [false; 128]].concat());
        if is_dropped {
            drop(answer);
        } else {
            assert!(answer.poll().is_ready());
        }
        assert_eq!(is_woken(&callers), [true; 256]);
        assert!(callers.iter_mut().all(|caller| caller.poll().is_ready()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_caller_leaves_before_the_call_is_not_charged() {
    let lab = Lab::new();
    let busy = lab.busy();
    let mut asked: Vec<Option<PendingReply>> = ["a", "b", "b", "b", "c", "c"]
        .map(|key| Some(lab.enqueue(key)))
        .into();
    for gone in [0, 2, 4, 5] {
        asked[gone] = None;
    }
    let mut due_calls = lab.ended(busy.kind);
    assert_eq!(due_calls.iter().map(rows).collect::<Vec<_>>(), [[2]]);
    // A caller that leaves now has been charged.
    let stays = asked[3].take().unwrap();
    asked.clear();
    answer(due_calls.remove(0)).await;
    assert_eq!(left(stays).await, 3, "behind one that was there before");
}

/// The rows on both sides of the row that its caller left stay apart.
#[tokio::test(start_paused = true)]
async fn two_rows_can_have_the_same_key_if_the_row_between_them_is_not_sent() {
    let lab = Lab::new();
    let busy = lab.busy();
    let asked = ["a", "a", "b", "a", "a", "a"].map(|key| lab.enqueue(key));
    let [first, second, between, gone, third, fourth] = asked;
    drop((between, gone));
    let mut due_calls = lab.ended(busy.kind);
    assert_eq!(due_calls.iter().map(rows).collect::<Vec<_>>(), [[2, 2]]);
    answer(due_calls.remove(0)).await;
    // Each row is answered as if its bucket were full.
    assert_eq!((left(first).await, left(second).await), (4, 3));
    assert_eq!((left(third).await, left(fourth).await), (4, 3));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_all_callers_have_left_is_not_sent() {
    let lab = Lab::new();
    drop((lab.enqueue("a"), lab.enqueue("a"), lab.enqueue("b")));
    assert!(lab.take().is_empty());
    let _there = lab.enqueue("a");
    assert_eq!(rows(&lab.take()[0]), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_answered_in_the_order_of_its_requests() {
    let lab = Lab::new();
    let asked: Vec<PendingReply> = (0..7).map(|_| lab.enqueue("a")).collect();
    answer(lab.take().remove(0)).await;
    let mut row_answers = Vec::new();
    for pending in asked {
        row_answers.push(left(pending).await);
    }
    assert_eq!(row_answers, [4, 3, 2, 1, 0, -1, -1]);
}

#[tokio::test(start_paused = true)]
async fn a_full_call_does_not_wait() {
    let lab = Lab::new();
    let _busy = lab.busy();
    let keys: Vec<PendingReply> = (0..33).map(|n| lab.enqueue(&n.to_string())).collect();
    assert_eq!(lab.take().iter().map(rows).collect::<Vec<_>>(), [[1; 32]]);
    let hot: Vec<PendingReply> = (0..63).map(|_| lab.enqueue("hot")).collect();
    assert_eq!(lab.take().iter().map(rows).collect::<Vec<_>>(), [[1, 63]]);
    drop((keys, hot));
}

#[tokio::test(start_paused = true)]
async fn a_request_a_while_after_the_last_call_sends_the_waiting_ones() {
    let lab = Lab::new();
    let _busy = lab.busy();
    let waits = lab.enqueue("a");
    advance(Duration::from_micros(999)).await;
    let also = lab.enqueue("b");
    assert!(lab.take().is_empty());
    advance(Duration::from_micros(1)).await;
    // The third request does not read the clock, the fourth one does.
    let (third, fourth) = (lab.enqueue("c"), lab.enqueue("d"));
    assert_eq!(rows(&lab.take()[0]), [1; 4]);
    drop((waits, also, third, fourth));
}

#[tokio::test(start_paused = true)]
async fn the_task_is_woken_only_if_it_can_send_a_call() {
    let lab = Lab::new();
    let mut sent = Vec::new();
    for _ in 0..2 {
        let mut task = spawn(lab.send_queue.ready());
        assert!(task.poll().is_pending());
        let _there = lab.enqueue("a");
        assert!(task.is_woken() && task.poll().is_ready());
        sent.extend(lab.take());
    }
    assert_eq!(sent.len(), 2);
    let mut task = spawn(lab.send_queue.ready());
    assert!(task.poll().is_pending());
    let waiting: Vec<PendingReply> = (0..63).map(|_| lab.enqueue("a")).collect();
    assert!(!task.is_woken(), "two calls are in flight");
    let _last = lab.enqueue("a");
    assert!(task.is_woken());
    drop((sent, waiting));
}

#[tokio::test(start_paused = true)]
async fn a_request_is_woken_by_its_answer_and_by_the_end_of_the_connection() {
    let lab = Lab::new();
    let mut asked = spawn(lab.enqueue("a"));
    assert!(asked.poll().is_pending());
    let due_call = lab.take().remove(0);
    assert!(asked.poll().is_pending() && !asked.is_woken());
    answer(due_call).await;
    assert!(asked.is_woken() && asked.poll().is_ready());

    let (mut sent, mut unsent) = (spawn(lab.enqueue("a")), None);
    let due_calls = lab.take();
    let _ = (sent.poll(), unsent.insert(spawn(lab.enqueue("b"))).poll());
    lab.send_queue.health.disconnected("it is over".to_owned());
    lab.send_queue.disconnect();
    drop(due_calls);
    for mut lost in [sent, unsent.unwrap()] {
        assert!(lost.is_woken());
        let Poll::Ready(Err(Failure::NotConnected(why))) = lost.poll() else {
            panic!("still waiting");
        };
        assert_eq!(&*why, "it is over");
    }
    let refused = lab.send_queue.enqueue(lab.queued("a", Batching::Together));
    assert!(matches!(refused, Err(Failure::NotConnected(_))));
    // A new connection has no calls in flight.
    lab.send_queue.open();
    let _pending = lab.enqueue("a");
    assert_eq!(lab.take().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_to_go_alone_goes_alone() {
    let lab = Lab::new();
    let _busy = lab.busy();
    let alone = lab
        .send_queue
        .enqueue(lab.queued("a", Batching::Alone))
        .unwrap();
    let asking = lab
        .send_queue
        .enqueue(lab.queued("a", Batching::Asking))
        .unwrap();
    let waits = lab.enqueue("a");
    let due_calls = lab.take();
    let sent: Vec<_> = due_calls
        .iter()
        .map(|one| (one.asking, rows(one)))
        .collect();
    assert_eq!(sent, [(false, vec![1]), (true, vec![1])]);
    for due_call in due_calls {
        answer(due_call).await;
    }
    assert_eq!((left(alone).await, left(asking).await), (4, 4));
    assert!(spawn(waits).poll().is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_bounded_and_a_request_without_a_caller_takes_no_place() {
    let lab = Lab::new();
    // The first calls carry one request each, the others are full.
    let busy: Vec<_> = (0..FREE_CALLS + (CALLS - FREE_CALLS) * MOST_ROWS)
        .map(|n| (lab.enqueue(&format!("busy {n}")), lab.take()))
        .collect();
    let full = || {
        let mut there = Vec::new();
        while let Ok(pending) = lab
            .send_queue
            .enqueue(lab.queued(&there.len().to_string(), Batching::Together))
        {
            there.push(pending);
        }
        assert!(
            lab.take().is_empty(),
            "the maximum number of calls is in flight"
        );
        there
    };
    let all = full();
    assert_eq!(all.len(), LONGEST);
    drop(all);
    assert_eq!(full().len(), LONGEST);
    // On one key, too, the memory of requests whose callers have left is bounded.
    for _ in 0..40_000 {
        drop(lab.enqueue("hot"));
    }
    let state = lab.send_queue.lock();
    let queue = state.queues.values().next().unwrap();
    assert!(queue.len() < 300, "{}", queue.len());
    drop(busy);
}
