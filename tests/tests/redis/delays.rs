//! Servers that freeze, are slow, or are far away.

use std::{sync::Arc, time::Duration};

use tests::servers::Redis as Server;
use tokio::time::{Instant, timeout};
use tower_dist_ratelimit_redis::Redis;

use crate::support::{LONG, Set, behind_a_proxy, calls, fails_fast, policy, until};

/// Many keys with different numbers of remaining tokens, so that a mixed-up answer is noticed.
async fn told_apart(set: &Set) {
    for (number, cost) in (0..50).zip(1..) {
        let verdict = set.acquire(&format!("key {number}"), cost).await.unwrap();
        assert_eq!(verdict.decisions[0].remaining, 1000 - cost);
    }
}

async fn each_has_its_own(set: &Arc<Set>) {
    let looks: Vec<_> = (0..50_u64)
        .map(|number| {
            let set = Arc::clone(set);
            tokio::spawn(async move { (number, set.acquire(&format!("key {number}"), 0).await) })
        })
        .collect();
    for look in looks {
        let (number, verdict) = look.await.unwrap();
        assert_eq!(verdict.unwrap().decisions[0].remaining, 1000 - number - 1);
    }
}

#[tokio::test]
async fn after_a_freeze_no_reply_is_read_by_the_wrong_request() {
    let server = Server::start();
    let redis = Redis::builder(&server.url()).answer_timeout(Duration::from_millis(300));
    let set = Arc::new(Set::new(&redis.connect().await.unwrap(), &policy()));
    told_apart(&set).await;
    for _ in 0..2 {
        server.freeze();
        let started = Instant::now();
        for number in 0..40 {
            // Drops the request after a wait, as the layer does at its timeout.
            let key = format!("key {number}");
            let ask = set.acquire(&key, 0);
            let answer = timeout(Duration::from_millis(20), ask).await;
            assert!(!matches!(answer, Ok(Ok(_))), "a frozen server answers");
        }
        fails_fast(&set).await;
        assert!(started.elapsed() < LONG);
        server.thaw();
        until("decisions to resume", || async {
            set.acquire("x", 0).await.ok()
        })
        .await;
        each_has_its_own(&set).await;
    }
}

#[tokio::test]
async fn a_short_freeze_costs_no_connection_and_mixes_no_replies() {
    let server = Server::start();
    let redis = Redis::builder(&server.url()).answer_timeout(LONG);
    let set = Arc::new(Set::new(&redis.connect().await.unwrap(), &policy()));
    told_apart(&set).await;
    server.freeze();
    for number in 0..40 {
        let key = format!("key {number}");
        let ask = set.acquire(&key, 0);
        assert!(timeout(Duration::from_millis(2), ask).await.is_err());
    }
    server.thaw();
    each_has_its_own(&set).await;
}

#[tokio::test]
async fn no_request_waits_for_a_distant_servers_answers_to_other_requests() {
    let (server, proxy, set) = behind_a_proxy().await;
    server.call(&["CONFIG", "RESETSTAT"]);
    proxy.delay(Duration::from_millis(300));
    let mut asks = Vec::new();
    for _ in 0..20 {
        let set = Arc::clone(&set);
        asks.push(tokio::spawn(async move { set.one("k").await.unwrap() }));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for ask in asks {
        assert!(ask.await.unwrap().allowed);
    }
    // Each request was sent immediately, while earlier answers were still in flight.
    let calls = calls(&server);
    assert!(calls >= 15, "{calls}");
}

#[tokio::test]
async fn the_second_of_two_requests_does_not_wait_for_a_distant_servers_answer_to_the_first() {
    let (_server, proxy, set) = behind_a_proxy().await;
    let away = Duration::from_millis(300);
    proxy.delay(away);
    for _ in 0..3 {
        let mut asks = Vec::new();
        for _ in 0..2 {
            let set = Arc::clone(&set);
            asks.push(tokio::spawn(async move {
                let began = Instant::now();
                assert!(set.one("k").await.unwrap().allowed);
                began.elapsed()
            }));
            // The first request was sent, and only a moment ago.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        for ask in asks {
            let took = ask.await.unwrap();
            assert!(took < away * 2, "{took:?}");
        }
    }
}

#[tokio::test]
async fn a_slow_server_is_waited_for_and_others_do_not_queue_behind_it() {
    let (_server, proxy, set) = behind_a_proxy().await;
    proxy.delay(Duration::from_millis(100));
    let started = Instant::now();
    let asks: Vec<_> = (0..500)
        .map(|number| {
            let set = Arc::clone(&set);
            tokio::spawn(async move { set.one(&number.to_string()).await.unwrap().allowed })
        })
        .collect();
    for ask in asks {
        assert!(ask.await.unwrap());
    }
    // A hundred at a time, and each waits for at most two answers; one by one they would take 50 s.
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn requests_without_callers_take_no_place_in_the_queue() {
    let server = Server::start();
    let redis = Redis::builder(&server.url()).answer_timeout(LONG);
    let set = Arc::new(Set::new(&redis.connect().await.unwrap(), &policy()));
    set.one("k").await.unwrap();
    server.freeze();
    let asks: Vec<_> = (0..6_000)
        .map(|_| {
            let set = Arc::clone(&set);
            tokio::spawn(async move {
                let ask = set.acquire("k", 0);
                timeout(Duration::from_millis(500), ask).await
            })
        })
        .collect();
    for ask in asks {
        // Some requests fail immediately, because the queue is full.
        assert!(!matches!(ask.await.unwrap(), Ok(Ok(_))));
    }
    let one = {
        let set = Arc::clone(&set);
        tokio::spawn(async move { set.one("k").await })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.thaw();
    assert!(one.await.unwrap().unwrap().allowed);
}
