//! How much there can be of anything.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_call_is_of_so_many_requests_at_most_though_they_are_one_row() {
    let lab = Lab::new();
    let _busy = lab.busy();
    let hot: Vec<Pending> = (0..300).map(|_| lab.post("hot")).collect();
    assert_eq!(lab.take().iter().map(rows).collect::<Vec<_>>(), [[256]]);
    drop(hot);
}

#[tokio::test(start_paused = true)]
async fn no_more_wait_to_go_alone_than_to_go_with_others() {
    let lab = Lab::new();
    let post = || lab.outbox.post(lab.work("a", How::Alone));
    let alone: Vec<Pending> = (0..LONGEST).map(|_| post().unwrap()).collect();
    assert!(post().is_err());
    assert_eq!(lab.take().len(), LONGEST);
    assert!(post().is_ok());
    drop(alone);
}

#[tokio::test(start_paused = true)]
async fn kinds_of_which_nothing_is_on_its_way_are_forgotten_and_no_others() {
    const KINDS: u16 = 100;
    let lab = Lab::new();
    let post = |slot| {
        let (call, how) = (Call::to_one(&lab.script, "a", 1), How::Together);
        lab.outbox.post(Work { call, slot, how }).unwrap()
    };
    let end = |sent: Vec<Parcel>| {
        let mut parcels = Vec::new();
        for parcel in sent {
            let kind = parcel.kind.unwrap();
            answer(parcel);
            lab.outbox.ended(kind, &mut parcels);
        }
        parcels
    };
    let first: Vec<Pending> = (0..KINDS).map(post).collect();
    let mut sent = lab.take();
    let second: Vec<Pending> = (0..KINDS).map(post).collect();
    sent.extend(lab.take());
    assert_eq!(sent.len(), 200);
    let others: Vec<Pending> = (0..KINDS).map(post).collect();
    assert!(lab.take().is_empty(), "calls are on their way");
    let sent = end(sent);
    assert_eq!(sent.len(), 100);
    assert!(end(sent).is_empty());
    for pending in first.into_iter().chain(second).chain(others) {
        assert_eq!(left(pending).await, 4);
    }
    assert_eq!(lab.outbox.lock().queues.len(), IDLE_KINDS);
}
