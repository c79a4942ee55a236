//! Readers on several threads.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tower_attempt::{Attempt, ReplayBody};

use crate::{again, first, last, read};

const FRAMES: u32 = 3_000;

fn content() -> Vec<u8> {
    (0..FRAMES).flat_map(u32::to_be_bytes).collect()
}

/// The frames of a channel.
struct Received(mpsc::Receiver<Bytes>);

impl Body for Received {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let received = self.0.poll_recv(cx);
        received.map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}

fn received(capacity: usize) -> (mpsc::Sender<Bytes>, ReplayBody<Received>) {
    let (sender, receiver) = mpsc::channel(capacity);
    (sender, ReplayBody::new(Received(receiver)))
}

/// Sends the frames in bursts and singly.
async fn send(sender: mpsc::Sender<Bytes>) {
    for n in 0..FRAMES {
        let frame = Bytes::copy_from_slice(&n.to_be_bytes());
        if sender.send(frame).await.is_err() {
            return;
        }
        if n % 7 == 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_readers_get_every_frame_once_and_in_order() {
    for round in 0..10 {
        let (sender, body) = received(1 + round);
        let (body, saved) = first(body, usize::MAX);
        let second = again(&saved, Attempt::hedge(2)).unwrap();
        let stalled = again(&saved, Attempt::hedge(3)).unwrap();
        let mut readers = vec![tokio::spawn(read(body)), tokio::spawn(read(second))];
        tokio::spawn(send(sender));
        tokio::task::yield_now().await;
        readers.push(tokio::spawn(read(last(saved, Attempt::hedge(4)).unwrap())));
        for reader in readers {
            let read = timeout(Duration::from_secs(10), reader).await;
            let read = read.expect("a wake-up was lost").unwrap().unwrap();
            assert_eq!(read, content());
        }
        drop(stalled);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cancelled_readers_delay_no_other_reader() {
    for round in 0..40 {
        let (sender, body) = received(1);
        let (body, saved) = first(body, usize::MAX);
        let reader = tokio::spawn(read(body));
        let cancelled: Vec<_> = (2..5)
            .map(|n| tokio::spawn(read(again(&saved, Attempt::hedge(n)).unwrap())))
            .collect();
        tokio::spawn(send(sender));
        for (n, task) in cancelled.into_iter().enumerate() {
            for _ in 0..round * n {
                tokio::task::yield_now().await;
            }
            task.abort();
        }
        drop(saved);
        let read = timeout(Duration::from_secs(10), reader).await;
        let read = read.expect("a wake-up was lost").unwrap().unwrap();
        assert_eq!(read, content());
    }
}
