//! The bounds of all queues.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_number_of_requests_of_a_call_is_bounded_even_in_one_row() {
    let lab = Lab::new();
    let _busy = lab.busy();
    let hot: Vec<PendingReply> = (0..300).map(|_| lab.enqueue("hot")).collect();
    assert_eq!(lab.take().iter().map(rows).collect::<Vec<_>>(), [[256]]);
    drop(hot);
}

#[tokio::test(start_paused = true)]
async fn the_queue_of_calls_that_go_alone_is_bounded_too() {
    let lab = Lab::new();
    let enqueue = || lab.send_queue.enqueue(lab.queued("a", Batching::Alone));
    let alone: Vec<PendingReply> = (0..LONGEST).map(|_| enqueue().unwrap()).collect();
    assert!(enqueue().is_err());
    assert_eq!(lab.take().len(), LONGEST);
    assert!(enqueue().is_ok());
    drop(alone);
}

#[tokio::test(start_paused = true)]
async fn only_kinds_without_requests_are_forgotten() {
    const KINDS: u16 = 100;
    let lab = Lab::new();
    let enqueue = |slot| {
        let (call, batching) = (ScriptCall::to_one(&lab.script, "a", 1), Batching::Together);
        lab.send_queue
            .enqueue(QueuedCall {
                call,
                slot,
                batching,
            })
            .unwrap()
    };
    let end = |sent: Vec<DueCall>| {
        let mut due_calls = Vec::new();
        for due_call in sent {
            let kind = due_call.kind.unwrap();
            assert!(spawn(answer(due_call)).poll().is_ready());
            lab.send_queue.ended(kind, &mut due_calls);
        }
        due_calls
    };
    let first: Vec<PendingReply> = (0..KINDS).map(enqueue).collect();
    let mut sent = lab.take();
    let second: Vec<PendingReply> = (0..KINDS).map(enqueue).collect();
    sent.extend(lab.take());
    assert_eq!(sent.len(), 200);
    let others: Vec<PendingReply> = (0..KINDS).map(enqueue).collect();
    assert!(lab.take().is_empty(), "calls are in flight");
    let sent = end(sent);
    assert_eq!(sent.len(), 100);
    assert!(end(sent).is_empty());
    for pending in first.into_iter().chain(second).chain(others) {
        assert_eq!(left(pending).await, 4);
    }
    assert_eq!(lab.send_queue.lock().queues.len(), IDLE_KINDS);
}
