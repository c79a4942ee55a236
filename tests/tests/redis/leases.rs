//! Four processes that lease from one server; each process is this test program, started again.

use std::{
    env,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tests::servers::{Redis as Server, Reply, Resp};
use tokio::time::{Instant, sleep};
use tower_dist_ratelimit::{Consistency, FailureMode, Limiter, Policy, Quota};

use crate::support::{calls, connect, until};

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const LEASE: Duration = Duration::from_millis(500);
const TIME: Duration = Duration::from_secs(3);

/// Tokens per second, and the burst.
const RATE: u64 = 1_000;
const BURST: u64 = 200;

/// Runs one process of the fleet. Does nothing in an ordinary test run.
#[tokio::test]
async fn a_member_leases_and_asks_for_three_seconds() {
    let Ok(port) = env::var("LEASES_PORT") else {
        return;
    };
    let port: u16 = port.parse().unwrap();
    let redis = connect(&format!("redis://127.0.0.1:{port}")).await;
    let policy = Policy::new("leased", Quota::per_second(RATE).burst(BURST));
    let limiter = Limiter::builder(redis, policy)
        .consistency(Consistency::Leased(LEASE))
        .backend_timeout(Duration::from_secs(5))
        .failure_mode(FailureMode::Closed)
        .build()
        .unwrap();
    limiter.peek("all").await.unwrap();
    let mut control = Resp::connect(port).unwrap();
    control.call(&["INCR", "ready"]).unwrap();
    while control.call(&["GET", "go"]).unwrap() == Reply::Nil {
        sleep(Duration::from_millis(5)).await;
    }
    let end = Instant::now() + TIME;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let (mut admitted, mut decided) = (0_u64, 0_u64);
                while Instant::now() < end {
                    let decision = limiter.check("all").await.unwrap();
                    admitted += u64::from(decision.allowed);
                    decided += 1;
                    sleep(Duration::from_millis(2)).await;
                }
                (admitted, decided)
            })
        })
        .collect();
    for task in tasks {
        let (admitted, decided) = task.await.unwrap();
        for (name, count) in [("admitted", admitted), ("decided", decided)] {
            control.call(&["INCRBY", name, &count.to_string()]).unwrap();
        }
    }
}

fn member(port: u16) -> Child {
    let test = "leases::a_member_leases_and_asks_for_three_seconds";
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test])
        .env("LEASES_PORT", port.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn processes_that_lease_admit_the_limit_for_a_tenth_of_the_round_trips() {
    let server = Server::start();
    let members: Vec<Child> = (0..PROCESSES).map(|_| member(server.port())).collect();
    until("the fleet", || async {
        (server.call(&["GET", "ready"]).text() == PROCESSES.to_string()).then_some(())
    })
    .await;
    let (before, started) = (calls(&server), Instant::now());
    server.call(&["SET", "go", "1"]);
    for mut member in members {
        assert!(member.wait().unwrap().success());
    }
    let took = started.elapsed();
    let count = |name: &str| -> u64 { server.call(&["GET", name]).text().parse().unwrap() };
    let (admitted, decided) = (count("admitted"), count("decided"));
    let earned = |time: Duration| RATE * u64::try_from(time.as_millis()).unwrap() / 1000;
    let most = BURST + earned(took + LEASE) + 1;
    let least = (BURST + earned(TIME)).min(decided) * 85 / 100;
    let trips = calls(&server) - before;
    println!("{admitted} of {decided} in {trips} round trips");
    assert!(
        (least..=most).contains(&admitted),
        "{admitted}: {least} to {most}"
    );
    assert!(trips * 10 <= decided * 15 / 10, "{trips} for {decided}");
}
