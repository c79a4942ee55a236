use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tests::servers::{Memcached as Server, Proxy};
use tokio::time::{Instant, sleep, timeout};
use tower_dist_ratelimit::{
    Decisions, FailureMode, Limiter, Policy, Quota, Source,
    backend::{Answer, Backend, Charge},
};
use tower_dist_ratelimit_memcached::Memcached;

use crate::support::{HOUR, LONG, Set, away_from_boundaries, connect, every, until};

fn policy() -> [Policy; 1] {
    [Policy::new("p", Quota::new(1_000, 1000 * HOUR))]
}

/// A decision fails, and fails fast.
async fn fails_fast(set: &Set) {
    until("the connection to be given up", || async {
        let charge = [Charge::new(set.ids[0], b"k", 1)];
        let answer = set.memcached.acquire(&charge, &mut Decisions::rejected(1));
        matches!(answer, Answer::Failed(_)).then_some(())
    })
    .await;
}

/// Waits until the backend decides again.
async fn resumes(set: &Set) {
    until("decisions to resume", || async {
        set.take("again", 0).await.ok()
    })
    .await;
}

#[tokio::test]
async fn a_killed_server_is_noticed_immediately_and_counts_from_zero_after_its_restart() {
    let mut server = Server::start();
    let set = Set::new(&connect(&server.url()).await, &policy());
    for expected in [999, 998] {
        assert_eq!(set.take("k", 1).await.unwrap().remaining, expected);
    }
    server.kill();
    fails_fast(&set).await;
    server.restart();
    resumes(&set).await;
    assert_eq!(set.take("k", 1).await.unwrap().remaining, 999);
}

#[tokio::test]
async fn a_flush_causes_no_error_and_counts_from_zero() {
    away_from_boundaries().await;
    let server = Server::start();
    let memcached = connect(&server.url()).await;
    for set in Set::each(&memcached, every(100)) {
        let fresh = set.take("k", 1).await.unwrap();
        set.take("k", 1).await.unwrap();
        server.call("flush_all");
        let flushed = set.take("k", 1).await.unwrap();
        assert_eq!(flushed.remaining, fresh.remaining);
    }
}

/// Many keys with different numbers of remaining tokens, so that a mixed-up answer is noticed.
async fn told_apart(set: &Set) {
    for (number, cost) in (0..50).zip(1..) {
        let decision = set.take(&format!("key {number}"), cost).await.unwrap();
        assert_eq!(decision.remaining, 1000 - cost);
    }
}

async fn each_has_its_own(set: &Set) {
    let looks: Vec<_> = (0..50_u64)
        .map(|number| {
            let set = set.clone();
            tokio::spawn(async move { (number, set.look(&format!("key {number}")).await) })
        })
        .collect();
    for look in looks {
        let (number, decision) = look.await.unwrap();
        assert_eq!(decision.remaining, 1000 - number - 1);
    }
}

#[tokio::test]
async fn after_a_freeze_no_reply_is_read_by_the_wrong_request() {
    away_from_boundaries().await;
    let server = Server::start();
    let builder = Memcached::builder(&server.url()).answer_timeout(Duration::from_millis(300));
    let memcached = builder.connect().await.unwrap();
    let fixed = Policy::new("fixed", Quota::new(1_000, HOUR)).fixed_window();
    for set in [
        Set::new(&memcached, &policy()),
        Set::new(&memcached, &[fixed]),
    ] {
        told_apart(&set).await;
        server.freeze();
        let started = Instant::now();
        for number in 0..40 {
            // Drops the request after a wait, as the layer does at its timeout.
            let key = format!("key {number}");
            let answer = timeout(Duration::from_millis(20), set.take(&key, 0)).await;
            assert!(!matches!(answer, Ok(Ok(_))), "a frozen server answers");
        }
        fails_fast(&set).await;
        assert!(started.elapsed() < LONG);
        server.thaw();
        resumes(&set).await;
        each_has_its_own(&set).await;
    }
}

#[tokio::test]
async fn a_short_freeze_costs_no_connection_and_mixes_no_replies() {
    let server = Server::start();
    let builder = Memcached::builder(&server.url()).answer_timeout(LONG);
    let set = Set::new(&builder.connect().await.unwrap(), &policy());
    told_apart(&set).await;
    let connections = server.stat("total_connections");
    server.freeze();
    for number in 0..40 {
        let key = format!("key {number}");
        let ask = set.take(&key, 0);
        assert!(timeout(Duration::from_millis(2), ask).await.is_err());
    }
    server.thaw();
    each_has_its_own(&set).await;
    // This query itself uses one connection.
    assert_eq!(server.stat("total_connections"), connections + 1);
}

#[tokio::test]
async fn a_charge_that_times_out_is_made_once() {
    away_from_boundaries().await;
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let memcached = connect(&format!("memcached://127.0.0.1:{}", proxy.port())).await;
    let fixed = Policy::new("fixed", Quota::new(1_000, HOUR)).fixed_window();
    for set in [
        Set::new(&memcached, &policy()),
        Set::new(&memcached, &[fixed]),
    ] {
        set.take("k", 0).await.unwrap();
        proxy.delay(Duration::from_millis(200));
        for _ in 0..3 {
            let late = timeout(Duration::from_millis(50), set.take("k", 1)).await;
            assert!(late.is_err());
        }
        proxy.delay(Duration::ZERO);
        sleep(Duration::from_millis(700)).await;
        let left = set.look("k").await.remaining;
        assert!((997..=1000).contains(&left), "{left}");
    }
}

/// A service's view of a backend that fails and recovers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_every_request_is_decided_within_the_timeout_during_every_fault() {
    const TIMEOUT: Duration = Duration::from_millis(50);
    let mut server = Server::start();
    let memcached = Memcached::builder(&server.url()).answer_timeout(Duration::from_millis(200));
    let policy = Policy::new("p", Quota::per_second(1_000_000));
    let builder = Limiter::builder(memcached.connect().await.unwrap(), policy);
    let builder = builder.backend_timeout(TIMEOUT);
    let builder = builder.failure_mode(FailureMode::Local { instances: 2 });
    let limiter = Arc::new(builder.build().unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let [by_store, by_us] = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    let tasks: Vec<_> = (0..16)
        .map(|number| {
            let (limiter, stop) = (Arc::clone(&limiter), Arc::clone(&stop));
            let (by_store, by_us) = (Arc::clone(&by_store), Arc::clone(&by_us));
            tokio::spawn(async move {
                let mut longest = Duration::ZERO;
                while !stop.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    let key = format!("key {}", number % 4);
                    let decision = limiter.check(&*key).await.unwrap();
                    longest = longest.max(asked.elapsed());
                    match decision.source {
                        Source::Backend => by_store.fetch_add(1, Ordering::Relaxed),
                        Source::Local => by_us.fetch_add(1, Ordering::Relaxed),
                        other => panic!("{other:?}"),
                    };
                    sleep(Duration::from_millis(2)).await;
                }
                longest
            })
        })
        .collect();
    let goes_on = |counter: Arc<AtomicU64>, what: &'static str| async move {
        let before = counter.load(Ordering::Relaxed);
        until(what, || async {
            (counter.load(Ordering::Relaxed) > before + 50).then_some(())
        })
        .await;
    };
    let store = || goes_on(Arc::clone(&by_store), "the store to decide");
    let ours = || goes_on(Arc::clone(&by_us), "this process to decide");
    store().await;
    server.freeze();
    ours().await;
    server.thaw();
    store().await;
    server.call("flush_all");
    store().await;
    server.kill();
    ours().await;
    server.restart();
    store().await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        let longest = task.await.unwrap();
        // The timeout, and the delay of a task on a busy machine.
        assert!(longest < TIMEOUT + Duration::from_secs(1), "{longest:?}");
    }
}

/// A server without memory for all keys evicts old keys; with `-M` it rejects writes.
#[tokio::test]
async fn a_full_server_forgets_the_oldest_keys_or_fails_the_newest() {
    for settings in [&["-m", "2"][..], &["-m", "2", "-M"]] {
        let server = Server::with(settings);
        let fixed = Policy::new("p", Quota::new(1, HOUR)).fixed_window_from_first_request();
        let set = Set::new(&connect(&server.url()).await, &[fixed]);
        let of = |number: u32| format!("flood {number}");
        assert!(set.take("first", 1).await.unwrap().allowed);
        let mut failed = 0;
        for flood in 0..40 {
            let asks: Vec<_> = (0..1000)
                .map(|number| {
                    let (set, key) = (set.clone(), of(flood * 1000 + number));
                    tokio::spawn(async move { set.take(&key, 1).await })
                })
                .collect();
            for ask in asks {
                match ask.await.unwrap() {
                    Ok(decision) => assert!(decision.allowed),
                    Err(error) => {
                        assert!(error.to_string().contains("Out of memory"), "{error}");
                        failed += 1;
                    }
                }
            }
        }
        let again = set.take("first", 1).await.unwrap();
        if settings.contains(&"-M") {
            assert!(failed > 0 && !again.allowed, "{failed} failed: {again:?}");
        } else {
            assert!(failed == 0 && again.allowed, "{failed} failed: {again:?}");
        }
    }
}

#[tokio::test]
async fn a_server_that_sent_no_answer_or_garbage_is_used_soon_after_it_recovers() {
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let memcached = connect(&format!("memcached://127.0.0.1:{}", proxy.port())).await;
    let set = Set::new(&memcached, &policy());
    set.take("k", 1).await.unwrap();
    let garbage: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    for answer in [b"", garbage] {
        proxy.answer_only(Some(answer));
        // The first attempt to connect begins within 50 ms, and hangs.
        sleep(Duration::from_millis(500)).await;
        proxy.answer_only(None);
        let recovered = Instant::now();
        resumes(&set).await;
        let took = recovered.elapsed();
        // Without further attempts this would take until the timeout of 5 s.
        assert!(took < Duration::from_secs(3), "{took:?} after {answer:?}");
    }
}
