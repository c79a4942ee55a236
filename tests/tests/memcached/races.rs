//! Many concurrent writers, each with its own connection, like the processes of a fleet.

use std::{
    future::{Future, poll_fn},
    sync::Arc,
    task::{Context, Poll},
};

use tests::servers::Memcached as Server;
use tokio::{sync::Barrier, task::JoinSet, time::Instant};
use tower_dist_ratelimit::{Policy, Quota};

use crate::support::{HOUR, LONG, Set, away_from_boundaries, connect, every};

const WRITERS: usize = 32;
const LIMIT: u64 = 100;

/// Takes tokens of one key through 32 connections with several tasks each; returns the number of granted tokens.
async fn race(server: &Server, policies: fn() -> Vec<Policy>, tasks: usize, asks: usize) -> u64 {
    let mut racing = JoinSet::new();
    let start = Arc::new(Barrier::new(WRITERS * tasks));
    for _ in 0..WRITERS {
        let set = Set::new(&connect(&server.url()).await, &policies());
        for _ in 0..tasks {
            let (set, start) = (set.clone(), Arc::clone(&start));
            racing.spawn(async move {
                start.wait().await;
                let mut granted = 0;
                for _ in 0..asks {
                    granted += set.take("everyone", 1).await.unwrap().granted;
                }
                granted
            });
        }
    }
    let mut granted = 0;
    while let Some(one) = racing.join_next().await {
        granted += one.unwrap();
    }
    granted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_writers_get_exactly_the_limit_of_a_bucket_and_none_starves() {
    let server = Server::start();
    let started = Instant::now();
    let bucket = || vec![Policy::new("bucket", Quota::new(LIMIT, 1000 * HOUR))];
    assert_eq!(race(&server, bucket, 2, 4).await, LIMIT);
    // 256 decisions on one key. The server must execute 100 of them one after another.
    assert!(started.elapsed() < LONG, "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_writers_get_exactly_the_limit_of_every_algorithm() {
    away_from_boundaries().await;
    let server = Server::start();
    let one: [fn() -> Vec<Policy>; 4] = [
        || vec![Policy::new("first", Quota::new(LIMIT, HOUR)).fixed_window_from_first_request()],
        || vec![Policy::new("fixed", Quota::new(LIMIT, HOUR)).fixed_window()],
        || vec![Policy::new("two", Quota::new(LIMIT, HOUR)).sliding_window()],
        || vec![Policy::new("whole", Quota::new(LIMIT, HOUR)).sliding_window_strict(4)],
    ];
    for policies in one {
        let name = policies()[0].name().to_owned();
        assert_eq!(race(&server, policies, 4, 2).await, LIMIT, "{name}");
        let set = Set::new(&connect(&server.url()).await, &policies());
        assert_eq!(set.look("everyone").await.remaining, 0, "{name}");
    }
    let granted = race(&server, || every(LIMIT), 2, 2).await;
    assert!(granted <= LIMIT + 1, "{granted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_that_do_not_fit_leave_room_for_those_that_do() {
    away_from_boundaries().await;
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let policy = Policy::new("weighted", Quota::new(LIMIT, HOUR)).fixed_window();
    let set = Set::new(&memcached, &[policy]);
    let mut racing = JoinSet::new();
    for number in 0..400_u64 {
        let set = set.clone();
        racing.spawn(async move { set.take("k", 1 + number % 17).await.unwrap().granted });
    }
    let mut granted = 0;
    while let Some(one) = racing.join_next().await {
        granted += one.unwrap();
    }
    // No rejected request stays counted.
    assert!(granted <= LIMIT);
    assert_eq!(set.look("k").await.remaining, LIMIT - granted);
    while granted < LIMIT {
        granted += set.take("k", 1).await.unwrap().granted;
    }
    assert!(!set.take("k", 1).await.unwrap().allowed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_charges_to_one_key_share_a_round_trip() {
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    let set = Set::new(
        &memcached,
        &[Policy::new("hot", Quota::per_hour(1_000_000))],
    );
    let before = server.commands();
    let mut asks = JoinSet::new();
    for _ in 0..2000 {
        let set = set.clone();
        asks.spawn(async move { set.take("hot", 1).await.unwrap().allowed });
    }
    while let Some(allowed) = asks.join_next().await {
        assert!(allowed.unwrap());
    }
    let commands = server.commands() - before;
    assert!(commands < 700, "{commands} commands for 2000 decisions");
    let left = set.look("hot").await.remaining;
    assert!(
        (1_000_000 - 2000..1_000_000 - 1000).contains(&left),
        "{left}"
    );
}

#[tokio::test]
async fn a_call_that_is_dropped_disturbs_no_other() {
    away_from_boundaries().await;
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    for policy in [
        Policy::new("bucket", Quota::new(10_000, 1000 * HOUR)),
        Policy::new("fixed", Quota::new(10_000, HOUR)).fixed_window(),
        Policy::new("two", Quota::new(10_000, HOUR)).sliding_window(),
    ] {
        let set = Set::new(&memcached, &[policy]);
        let (mut kept, mut dropped) = (Vec::new(), 0);
        for number in 0..300 {
            let mut later = Box::pin({
                let set = set.clone();
                async move { set.take("k", 1).await }
            });
            // Sent, but not answered yet.
            let poll = |cx: &mut Context<'_>| Poll::Ready(later.as_mut().poll(cx).is_ready());
            assert!(!poll_fn(poll).await);
            if number % 3 == 0 {
                dropped += 1;
            } else {
                kept.push(later);
            }
        }
        let admitted = u64::try_from(kept.len()).unwrap();
        for later in kept {
            assert!(later.await.unwrap().allowed);
        }
        let used = 10_000 - set.look("k").await.remaining;
        assert!((admitted..=admitted + dropped).contains(&used), "{used}");
    }
}
