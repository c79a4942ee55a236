//! Four processes with 64 tasks each; each process is this test program, started again.

use std::{
    env,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tests::servers::{Redis as Server, Reply, Resp};
use tokio::time::Instant;
use tower_dist_ratelimit::{Policy, Quota};
use tower_dist_ratelimit_redis::Redis;

use crate::support::{LONG, Set, connect};

const PROCESSES: usize = 4;
const TASKS: u64 = 64;
const ASKS: u64 = 40;

/// A window that does not end before 2069.
const CENTURY: Duration = Duration::from_secs(3_155_760_000);

const LIMIT: u64 = 1_000;
/// Tokens per second, and the burst.
const RATE: u64 = 500;
const BURST: u64 = 800;

/// The error of the wrong clocks.
const WRONG: Duration = Duration::from_secs(600);

fn fixed() -> Policy {
    Policy::new("fixed", Quota::new(LIMIT, CENTURY)).fixed_window()
}

fn log() -> Policy {
    Policy::new("log", Quota::new(LIMIT, Duration::from_secs(3600))).sliding_window_log()
}

fn bucket() -> Policy {
    Policy::new("bucket", Quota::per_second(RATE).burst(BURST))
}

/// This limit in half the error of the wrong clocks.
fn short() -> Quota {
    Quota::new(LIMIT, WRONG / 2)
}

fn policies(case: &str) -> Vec<Policy> {
    match case {
        "fixed" => vec![fixed()],
        "log" => vec![log()],
        "bucket" => vec![bucket()],
        "three" => vec![
            Policy::new("wide", Quota::new(100_000, CENTURY)).fixed_window(),
            Policy::new("wider", Quota::per_hour(100_000)),
            log(),
        ],
        "three with a bucket" => vec![
            Policy::new("wide", Quota::new(100_000, CENTURY)).fixed_window(),
            Policy::new("wider", Quota::new(100_000, CENTURY)).fixed_window_from_first_request(),
            bucket(),
        ],
        "short first hit" => vec![Policy::new("first", short()).fixed_window_from_first_request()],
        "short log" => vec![Policy::new("log", short()).sliding_window_log()],
        other => panic!("{other}"),
    }
}

/// Runs one process of the fleet. Does nothing in an ordinary test run.
#[tokio::test]
async fn a_member_asks_as_often_as_it_can() {
    let (Ok(port), Ok(case)) = (env::var("FLEET_PORT"), env::var("FLEET_CASE")) else {
        return;
    };
    if env::var_os("FLEET_CLOCK_IS_WRONG").is_some() {
        // Sets this process's clock wrong. The crate reads no clock but tokio's, which the lints enforce.
        tokio::time::pause();
        tokio::time::advance(WRONG).await;
        tokio::time::resume();
    }
    let port: u16 = port.parse().unwrap();
    // A long timeout, because a busy machine can delay the server.
    let redis = Redis::builder(&format!("redis://127.0.0.1:{port}")).answer_timeout(LONG);
    let redis = redis.connect().await.unwrap();
    let set = Arc::new(Set::new(&redis, &policies(&case)));
    set.acquire("all", 0).await.unwrap();
    let mut control = Resp::connect(port).unwrap();
    control.call(&["INCR", "ready"]).unwrap();
    while control.call(&["GET", "go"]).unwrap() == Reply::Nil {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let set = Arc::clone(&set);
            tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..ASKS {
                    admitted += u64::from(set.acquire("all", 1).await.unwrap().allowed);
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    control
        .call(&["INCRBY", "admitted", &admitted.to_string()])
        .unwrap();
}

fn member(port: u16, case: &str, clock_is_wrong: bool) -> Child {
    let mut member = Command::new(env::current_exe().unwrap());
    member
        .args(["--exact", "fleet::a_member_asks_as_often_as_it_can"])
        .env("FLEET_PORT", port.to_string())
        .env("FLEET_CASE", case)
        .stdout(Stdio::null());
    if clock_is_wrong {
        member.env("FLEET_CLOCK_IS_WRONG", "");
    }
    member.spawn().unwrap()
}

/// Runs a fleet. Returns the number of admitted requests, the longest possible duration, and the server.
async fn fleet(case: &str) -> (u64, Duration, Server) {
    fleet_of(case, 0).await
}

/// Like [`fleet`], with `wrong` processes whose clock is wrong.
async fn fleet_of(case: &str, wrong: usize) -> (u64, Duration, Server) {
    let server = Server::start();
    let members: Vec<Child> = (0..PROCESSES)
        .map(|number| member(server.port(), case, number < wrong))
        .collect();
    crate::support::until("the fleet", || async {
        (server.call(&["GET", "ready"]).text() == PROCESSES.to_string()).then_some(())
    })
    .await;
    let started = Instant::now();
    server.call(&["SET", "go", "1"]);
    for mut member in members {
        assert!(member.wait().unwrap().success());
    }
    let took = started.elapsed();
    let admitted = server.call(&["GET", "admitted"]).text().parse().unwrap();
    (admitted, took, server)
}

#[tokio::test]
async fn a_fleet_admits_exactly_the_limit_of_a_fixed_window() {
    assert_eq!(fleet("fixed").await.0, LIMIT);
}

#[tokio::test]
async fn a_fleet_admits_exactly_the_limit_of_a_log() {
    assert_eq!(fleet("log").await.0, LIMIT);
}

#[tokio::test]
async fn a_fleet_admits_at_most_the_burst_and_the_refill() {
    let (admitted, took, _) = fleet("bucket").await;
    is_what_a_bucket_admits(admitted, took);
}

fn is_what_a_bucket_admits(admitted: u64, took: Duration) {
    let most = BURST + RATE * u64::try_from(took.as_millis()).unwrap() / 1000 + 1;
    assert!(
        (BURST..=most).contains(&admitted),
        "{admitted}, at most {most}"
    );
}

#[tokio::test]
async fn a_fleet_admits_exactly_the_limit_of_the_tightest_of_three_and_charges_the_others_no_more()
{
    let (admitted, _, server) = fleet("three").await;
    assert_eq!(admitted, LIMIT);
    let set = Set::new(&connect(&server.url()).await, &policies("three"));
    let verdict = set.acquire("all", 0).await.unwrap();
    assert_eq!(verdict.decisions[0].remaining, 100_000 - LIMIT);
    assert!(verdict.decisions[1].remaining >= 100_000 - LIMIT);
    assert_eq!(verdict.decisions[2].remaining, 0);
}

#[tokio::test]
async fn a_fleet_admits_the_tokens_of_the_strictest_of_three_buckets_and_charges_the_others_no_more()
 {
    let (admitted, took, server) = fleet("three with a bucket").await;
    is_what_a_bucket_admits(admitted, took);
    let set = Set::new(
        &connect(&server.url()).await,
        &policies("three with a bucket"),
    );
    let verdict = set.acquire("all", 0).await.unwrap();
    assert_eq!(verdict.decisions[0].remaining, 100_000 - admitted);
    assert_eq!(verdict.decisions[1].remaining, 100_000 - admitted);
}

#[tokio::test]
async fn clocks_of_processes_that_are_ten_minutes_wrong_do_not_change_the_decisions() {
    assert_eq!(fleet_of("short first hit", 2).await.0, LIMIT);
    assert_eq!(fleet_of("short log", 2).await.0, LIMIT);
    let (admitted, took, _) = fleet_of("bucket", 2).await;
    is_what_a_bucket_admits(admitted, took);
}
