//! The grouping of requests into calls, their timing and their answers, without a server.

mod bounds;

use std::{task::Poll, time::Duration};

use tokio::time::advance;
use tokio_test::task::spawn;

use super::{queue::FREE_CALLS, *};
use crate::{arguments::told, call::Call, reply::Words, script::Script};

/// An outbox with a connection, and a policy with a bucket of five tokens.
struct Lab {
    outbox: Outbox,
    script: Arc<Script>,
}

impl Lab {
    fn new() -> Self {
        let outbox = Outbox::new(Arc::new(Health::up()));
        outbox.open();
        Self {
            outbox,
            script: Script::of_five(),
        }
    }

    fn work(&self, key: &str, how: How) -> Work {
        let call = Call::to_one(&self.script, key, 1);
        Work { call, slot: 0, how }
    }

    fn post(&self, key: &str) -> Pending {
        self.outbox.post(self.work(key, How::Together)).unwrap()
    }

    /// Returns the calls that the task would send.
    fn take(&self) -> Vec<Parcel> {
        let mut parcels = Vec::new();
        self.outbox.take(&mut parcels);
        parcels
    }

    /// Sends as many calls as go without a wait, and leaves them in flight. Returns the last one.
    fn busy(&self) -> Parcel {
        drop(self.post("busy"));
        let calls = (0..FREE_CALLS).map(|_| {
            let _pending = self.post("busy");
            let mut parcels = self.take();
            assert_eq!(parcels.len(), 1);
            parcels.remove(0)
        });
        calls.last().unwrap()
    }
}

/// Answers the rows of a call as a server does whose buckets are all full.
fn answer(parcel: Parcel) {
    let rows = parcel.batch.rows.0.iter();
    let numbers = rows.flat_map(|row| match row.times {
        1 => vec![4, 200_000],
        _ => vec![0],
    });
    let told = told(&parcel.batch.rows, &numbers.collect::<Vec<_>>());
    parcel.batch.tell(Ok(told.unwrap()));
}

async fn left(pending: Pending) -> i64 {
    let words: Words = pending.await.unwrap();
    if words[0].granted < 0 {
        -1
    } else {
        words[0].remaining
    }
}

/// Returns the number of requests in each row.
fn rows(parcel: &Parcel) -> Vec<usize> {
    let rows = &parcel.batch.rows.0;
    rows.iter().map(|row| row.times).collect()
}

#[tokio::test(start_paused = true)]
async fn two_calls_go_immediately_and_further_requests_go_together() {
    let lab = Lab::new();
    let first = lab.post("a");
    let sent = lab.take().remove(0);
    let second = lab.post("b");
    assert_eq!(lab.take().iter().map(rows).collect::<Vec<_>>(), [[1]]);
    drop(second);
    let others = [lab.post("a"), lab.post("b"), lab.post("b")];
    assert!(lab.take().is_empty(), "two calls are on their way");
    let (kind, mut parcels) = (sent.kind.unwrap(), Vec::new());
    answer(sent);
    assert_eq!(left(first).await, 4);
    lab.outbox.ended(kind, &mut parcels);
    assert_eq!(parcels.iter().map(rows).collect::<Vec<_>>(), [[1, 2]]);
    answer(parcels.remove(0));
    let [a, b, again] = others.map(left);
    assert_eq!((a.await, b.await, again.await), (4, 4, 3));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_caller_leaves_before_the_call_is_not_charged() {
    let lab = Lab::new();
    let busy = lab.busy();
    let mut asked: Vec<Option<Pending>> = ["a", "b", "b", "b", "c", "c"]
        .map(|key| Some(lab.post(key)))
        .into();
    for gone in [0, 2, 4, 5] {
        asked[gone] = None;
    }
    let mut parcels = Vec::new();
    lab.outbox.ended(busy.kind.unwrap(), &mut parcels);
    assert_eq!(parcels.iter().map(rows).collect::<Vec<_>>(), [[2]]);
    // A caller that leaves now has been charged.
    let stays = asked[3].take().unwrap();
    asked.clear();
    answer(parcels.remove(0));
    assert_eq!(left(stays).await, 3, "behind one that was there before");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_all_callers_have_left_is_not_sent() {
    let lab = Lab::new();
    drop((lab.post("a"), lab.post("a"), lab.post("b")));
    assert!(lab.take().is_empty());
    let _there = lab.post("a");
    assert_eq!(rows(&lab.take()[0]), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_answered_in_the_order_of_its_requests() {
    let lab = Lab::new();
    let asked: Vec<Pending> = (0..7).map(|_| lab.post("a")).collect();
    answer(lab.take().remove(0));
    let mut told = Vec::new();
    for pending in asked {
        told.push(left(pending).await);
    }
    assert_eq!(told, [4, 3, 2, 1, 0, -1, -1]);
}

#[tokio::test(start_paused = true)]
async fn a_full_call_does_not_wait() {
    let lab = Lab::new();
    let _busy = lab.busy();
    let keys: Vec<Pending> = (0..33).map(|n| lab.post(&n.to_string())).collect();
    assert_eq!(lab.take().iter().map(rows).collect::<Vec<_>>(), [[1; 32]]);
    let hot: Vec<Pending> = (0..63).map(|_| lab.post("hot")).collect();
    assert_eq!(lab.take().iter().map(rows).collect::<Vec<_>>(), [[1, 63]]);
    drop((keys, hot));
}

#[tokio::test(start_paused = true)]
async fn a_request_a_while_after_the_last_call_sends_the_waiting_ones() {
    let lab = Lab::new();
    let _busy = lab.busy();
    let waits = lab.post("a");
    advance(Duration::from_micros(999)).await;
    let also = lab.post("b");
    assert!(lab.take().is_empty());
    advance(Duration::from_micros(1)).await;
    // The third request does not read the clock, the fourth one does.
    let (third, fourth) = (lab.post("c"), lab.post("d"));
    assert_eq!(rows(&lab.take()[0]), [1; 4]);
    drop((waits, also, third, fourth));
}

#[tokio::test(start_paused = true)]
async fn the_task_is_woken_only_if_it_can_send_a_call() {
    let lab = Lab::new();
    let mut sent = Vec::new();
    for _ in 0..2 {
        let mut task = spawn(lab.outbox.news());
        assert!(task.poll().is_pending());
        let _there = lab.post("a");
        assert!(task.is_woken() && task.poll().is_ready());
        sent.extend(lab.take());
    }
    assert_eq!(sent.len(), 2);
    let mut task = spawn(lab.outbox.news());
    assert!(task.poll().is_pending());
    let waiting: Vec<Pending> = (0..63).map(|_| lab.post("a")).collect();
    assert!(!task.is_woken(), "two calls are on their way");
    let _last = lab.post("a");
    assert!(task.is_woken());
    drop((sent, waiting));
}

#[tokio::test(start_paused = true)]
async fn a_request_is_woken_by_its_answer_and_by_the_end_of_the_connection() {
    let lab = Lab::new();
    let mut asked = spawn(lab.post("a"));
    assert!(asked.poll().is_pending());
    let parcel = lab.take().remove(0);
    assert!(asked.poll().is_pending() && !asked.is_woken());
    answer(parcel);
    assert!(asked.is_woken() && asked.poll().is_ready());

    let (mut sent, mut unsent) = (spawn(lab.post("a")), None);
    let parcels = lab.take();
    let _ = (sent.poll(), unsent.insert(spawn(lab.post("b"))).poll());
    lab.outbox.health.fall("it is over".to_owned());
    lab.outbox.shut();
    drop(parcels);
    for mut lost in [sent, unsent.unwrap()] {
        assert!(lost.is_woken());
        let Poll::Ready(Err(Failure::NotConnected(why))) = lost.poll() else {
            panic!("still waiting");
        };
        assert_eq!(&*why, "it is over");
    }
    let refused = lab.outbox.post(lab.work("a", How::Together));
    assert!(matches!(refused, Err(Failure::NotConnected(_))));
    // A new connection has no calls in flight.
    lab.outbox.open();
    let _pending = lab.post("a");
    assert_eq!(lab.take().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_to_go_alone_goes_alone() {
    let lab = Lab::new();
    let _busy = lab.busy();
    let alone = lab.outbox.post(lab.work("a", How::Alone)).unwrap();
    let asking = lab.outbox.post(lab.work("a", How::Asking)).unwrap();
    let waits = lab.post("a");
    let parcels = lab.take();
    let sent: Vec<_> = parcels.iter().map(|one| (one.asking, rows(one))).collect();
    assert_eq!(sent, [(false, vec![1]), (true, vec![1])]);
    parcels.into_iter().for_each(answer);
    assert_eq!((left(alone).await, left(asking).await), (4, 4));
    assert!(spawn(waits).poll().is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_bounded_and_a_request_without_a_caller_takes_no_place() {
    let lab = Lab::new();
    let busy: Vec<_> = (0..2 + 30 * 32)
        .map(|n| (lab.post(&format!("busy {n}")), lab.take()))
        .collect();
    let full = || {
        let mut there = Vec::new();
        while let Ok(pending) = lab
            .outbox
            .post(lab.work(&there.len().to_string(), How::Together))
        {
            there.push(pending);
        }
        assert!(
            lab.take().is_empty(),
            "as many calls as may be are on their way"
        );
        there
    };
    let all = full();
    assert_eq!(all.len(), LONGEST);
    drop(all);
    assert_eq!(full().len(), LONGEST);
    // On one key, too, the memory of requests whose callers have left is bounded.
    for _ in 0..40_000 {
        drop(lab.post("hot"));
    }
    let inside = lab.outbox.lock();
    let queue = inside.queues.values().next().unwrap();
    assert!(queue.len() < 300, "{}", queue.len());
    drop(busy);
}
