//! The end of a connection and the next connection, with connections in memory.

mod load;

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use redis::{Arg, Cmd, RedisResult, Value};
use tokio::{sync::oneshot, time::timeout};
use tower_dist_ratelimit::backend::{BoxFuture, toolkit::ConnectError};

use super::*;
use crate::{call::ScriptCall, queued_call::Batching, script::Script};

const PATIENCE: Timeouts = Timeouts {
    connect: Duration::MAX,
    answer: Duration::from_millis(500),
};

/// Answers each command like a full bucket after a delay, or stays silent if the test wants that.
#[derive(Default)]
struct Server {
    silent_for: AtomicUsize,
    away: Mutex<Duration>,
    /// Number of commands that were sent.
    sent: AtomicUsize,
}

impl CommandSender for Server {
    fn send(&self, command: Cmd, _: bool) -> BoxFuture<'static, RedisResult<Value>> {
        let less = |n: usize| n.checked_sub(1);
        let order = Ordering::Relaxed;
        self.sent.fetch_add(1, order);
        if self.silent_for.fetch_update(order, order, less).is_ok() {
            return Box::pin(std::future::pending());
        }
        let away = *self.away.lock().unwrap();
        Box::pin(async move {
            if !away.is_zero() {
                sleep(away).await;
            }
            let numbers = [4, 200_000].repeat(keys(&command));
            Ok(Value::Array(numbers.into_iter().map(Value::Int).collect()))
        })
    }
}

/// The number of keys of `EVALSHA sha number key ...`.
fn keys(command: &Cmd) -> usize {
    let Some(Arg::Simple(number)) = command.args_iter().nth(2) else {
        panic!("no number of keys");
    };
    str::from_utf8(number).unwrap().parse().unwrap()
}

/// Attempts to connect; every n-th attempt succeeds.
struct Lab {
    attempts: Mutex<Vec<Instant>>,
    every: usize,
    server: Arc<Server>,
    /// Ends the last connection when it is dropped.
    end: Mutex<Option<oneshot::Sender<()>>>,
}

impl Lab {
    fn new(every: usize) -> Arc<Self> {
        Arc::new(Self {
            attempts: Mutex::default(),
            every,
            server: Arc::default(),
            end: Mutex::default(),
        })
    }

    fn connect(self: &Arc<Self>) -> Connect {
        let lab = Arc::clone(self);
        Arc::new(move || {
            let made = lab.attempt();
            Box::pin(async { made })
        })
    }

    fn attempt(&self) -> Result<Connection, ConnectError> {
        let mut attempts = self.attempts.lock().unwrap();
        attempts.push(Instant::now());
        assert!(attempts.len() < 1000, "without a pause");
        if !attempts.len().is_multiple_of(self.every) {
            return Err(ConnectError::new("nobody", "is there"));
        }
        let (end, ends) = oneshot::channel();
        *self.end.lock().unwrap() = Some(end);
        Ok(Connection {
            commands: Arc::clone(&self.server) as Arc<dyn CommandSender>,
            driver: Box::pin(async {
                let _ = ends.await;
            }),
        })
    }

    fn attempts(&self) -> usize {
        self.attempts.lock().unwrap().len()
    }
}

/// Sends a request, and waits for the answer.
async fn ask(link: &Link) -> Result<(), Failure> {
    let (call, slot, batching) = (
        ScriptCall::to_one(&Script::of_five(), "k", 1),
        0,
        Batching::Together,
    );
    link.send(QueuedCall {
        call,
        slot,
        batching,
    })?
    .await
    .map(|_| ())
}

async fn up(link: &Link) {
    let up = async {
        while !link.is_up() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(60), up).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_first_connection_can_be_unlimited() {
    let connect: Connect = Arc::new(|| {
        Box::pin(async {
            sleep(Duration::from_secs(10)).await;
            Err(ConnectError::new("nobody", "is there"))
        })
    });
    let timeouts = Timeouts {
        connect: Duration::MAX,
        answer: Duration::MAX,
    };
    let link = Link::new(None, Some(connect), timeouts);
    let began = Instant::now();
    let failure = link.ready(timeouts.connect).await.unwrap_err();
    assert!(matches!(failure, Failure::NotConnected(why) if &*why == "nobody: is there"));
    assert!(began.elapsed() >= Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_is_tried_about_twice_a_second() {
    let lab = Lab::new(usize::MAX);
    let link = Link::new(None, Some(lab.connect()), PATIENCE);
    sleep(Duration::from_secs(60)).await;
    // With full jitter, pauses take half a second on average.
    assert!((80..180).contains(&lab.attempts()), "{}", lab.attempts());
    drop(link);
    let before = lab.attempts();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(lab.attempts(), before, "nobody is left to connect for");
}

#[tokio::test(start_paused = true)]
async fn no_attempt_to_connect_begins_once_the_link_was_dropped() {
    for _ in 0..20 {
        let lab = Lab::new(1);
        let link = Link::new(None, Some(lab.connect()), PATIENCE);
        drop(link);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(lab.attempts(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_connection_that_worked_the_pauses_start_from_the_first_one() {
    let lab = Lab::new(10);
    let link = Link::new(None, Some(lab.connect()), PATIENCE);
    for round in 1..=5 {
        up(&link).await;
        assert_eq!(lab.attempts(), 10 * round);
        ask(&link).await.unwrap();
        *lab.end.lock().unwrap() = None;
        sleep(Duration::from_millis(50 + 2)).await;
        assert!(lab.attempts() > 10 * round, "a pause of an earlier failure");
    }
}

#[tokio::test(start_paused = true)]
async fn two_consecutive_timeouts_end_a_connection_and_one_does_not() {
    let lab = Lab::new(1);
    let link = Link::new(None, Some(lab.connect()), PATIENCE);
    up(&link).await;
    for _ in 0..3 {
        lab.server.silent_for.store(1, Ordering::Relaxed);
        let began = Instant::now();
        assert!(ask(&link).await.is_err());
        assert_eq!(began.elapsed(), PATIENCE.answer);
        ask(&link).await.unwrap();
    }
    assert_eq!(lab.attempts(), 1);
    lab.server.silent_for.store(2, Ordering::Relaxed);
    assert!(ask(&link).await.is_err() && ask(&link).await.is_err());
    let down = ask(&link).await;
    assert!(
        matches!(&down, Err(Failure::NotConnected(why)) if why.contains("2 consecutive calls"))
    );
    up(&link).await;
    ask(&link).await.unwrap();
    assert_eq!(lab.attempts(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_fails_immediately_with_the_reason_of_the_lost_connection() {
    let lab = Lab::new(1);
    let link = Link::new(None, Some(lab.connect()), PATIENCE);
    up(&link).await;
    lab.server.silent_for.store(1, Ordering::Relaxed);
    let began = Instant::now();
    let asked = tokio::spawn({
        let link = link.clone();
        async move { ask(&link).await }
    });
    tokio::task::yield_now().await;
    *lab.end.lock().unwrap() = None;
    let failure = timeout(Duration::from_secs(60), asked).await;
    let failure = failure.unwrap().unwrap();
    assert!(
        matches!(failure, Err(Failure::NotConnected(why)) if why.ends_with("the connection was closed"))
    );
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn two_concurrent_requests_wait_for_one_round_trip_and_a_third_for_five_milliseconds_more() {
    let lab = Lab::new(1);
    let away = Duration::from_millis(300);
    *lab.server.away.lock().unwrap() = away;
    let link = Link::new(None, Some(lab.connect()), PATIENCE);
    up(&link).await;
    let script = Script::of_five();
    let enqueue = |key| {
        let call = ScriptCall::to_one(&script, key, 1);
        let (slot, batching) = (0, Batching::Together);
        link.send(QueuedCall {
            call,
            slot,
            batching,
        })
        .unwrap()
    };
    let began = Instant::now();
    let first = enqueue("a");
    tokio::task::yield_now().await;
    let second = enqueue("b");
    tokio::task::yield_now().await;
    let third = enqueue("c");
    assert!(first.await.is_ok() && second.await.is_ok());
    assert_eq!(began.elapsed(), away);
    assert!(third.await.is_ok());
    assert_eq!(began.elapsed(), away + Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn the_first_attempt_to_connect_begins_immediately() {
    let (lab, began) = (Lab::new(1), Instant::now());
    let link = Link::new(None, Some(lab.connect()), PATIENCE);
    up(&link).await;
    assert_eq!(lab.attempts.lock().unwrap()[..], [began]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_cannot_be_replaced_survives_timeouts() {
    let lab = Lab::new(1);
    let link = Link::new(Some(lab.attempt().unwrap()), None, PATIENCE);
    lab.server.silent_for.store(3, Ordering::Relaxed);
    for _ in 0..3 {
        assert!(ask(&link).await.is_err());
    }
    ask(&link).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_delays_the_connection_by_at_most_a_second() {
    for millis in [0, 300, 999, 1_000, 4_500, 20_000] {
        let (lab, silent) = (Lab::new(1), Arc::new(AtomicBool::new(true)));
        let (to, hangs) = (lab.connect(), Arc::clone(&silent));
        let connect: Connect = Arc::new(move || match hangs.load(Ordering::Relaxed) {
            true => Box::pin(std::future::pending()),
            false => to(),
        });
        let timeouts = Timeouts {
            connect: Duration::from_secs(5),
            ..PATIENCE
        };
        let link = Link::new(None, Some(connect), timeouts);
        sleep(Duration::from_millis(millis)).await;
        silent.store(false, Ordering::Relaxed);
        let recovered = Instant::now();
        up(&link).await;
        let took = recovered.elapsed();
        // `up` polls once a millisecond.
        assert!(took <= Duration::from_millis(1001), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_call_is_sent_before_the_callers_of_another_answer_run() {
    let lab = Lab::new(1);
    *lab.server.away.lock().unwrap() = Duration::from_millis(300);
    let link = Link::new(None, Some(lab.connect()), PATIENCE);
    up(&link).await;
    let script = Script::of_five();
    // Two calls of 32 keys each. Both answers arrive at the same time.
    let callers = (0..64).map(|key: u32| {
        let (link, script, server) = (link.clone(), Arc::clone(&script), Arc::clone(&lab.server));
        tokio::spawn(async move {
            let enqueue = || {
                let call = ScriptCall::to_one(&script, &key.to_string(), 1);
                let (slot, batching) = (0, Batching::Together);
                link.send(QueuedCall {
                    call,
                    slot,
                    batching,
                })
            };
            enqueue().unwrap().await.unwrap();
            let sent = server.sent.load(Ordering::Relaxed);
            enqueue().unwrap().await.unwrap();
            sent
        })
    });
    let callers: Vec<_> = callers.collect();
    for (number, caller) in callers.into_iter().enumerate() {
        assert_eq!(caller.await.unwrap(), 2 + number / 32);
    }
}
