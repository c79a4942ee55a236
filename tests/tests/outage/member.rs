use std::{
    env,
    io::Read,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, UNIX_EPOCH},
};

use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tower_dist_ratelimit::{FailureMode, Limiter, Policy, Quota, Source, backend::Backend};
use tower_dist_ratelimit_memcached::Memcached;
use tower_dist_ratelimit_redis::Redis;

use super::{BURST, LIMIT, RATE, WINDOW, fleet::MEMBERS};

/// The interval between one process's requests, which exceed the limit of the whole fleet.
const EVERY: Duration = Duration::from_micros(3_300);

fn policy(case: &str) -> Policy {
    match case {
        "bucket" => Policy::new("bucket", Quota::per_second(RATE).burst(BURST)),
        "window" => Policy::new("window", Quota::new(LIMIT, WINDOW)).fixed_window(),
        other => panic!("{other}"),
    }
}

async fn backend(url: &str) -> Arc<dyn Backend> {
    if url.starts_with("redis") {
        Arc::new(Redis::connect(url).await.unwrap())
    } else {
        Arc::new(Memcached::connect(url).await.unwrap())
    }
}

/// Runs one process of a fleet until its standard input ends. Does nothing in an ordinary test run.
#[tokio::test]
async fn a_member_asks_for_more_than_the_fleet_is_allowed() {
    let (Ok(url), Ok(case)) = (env::var("OUTAGE_URL"), env::var("OUTAGE_CASE")) else {
        return;
    };
    let fleet = u32::try_from(MEMBERS).unwrap();
    let limiter = Limiter::builder(backend(&url).await, policy(&case));
    let limiter = limiter.failure_mode(FailureMode::Local { instances: fleet });
    let limiter = limiter.build().unwrap();
    println!("\nconnected");
    let mut stop = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let admitted = Arc::<Mutex<Vec<u128>>>::default();
    let was_alone = Arc::new(AtomicBool::new(false));
    let mut every = interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stop => break,
            _ = every.tick() => {}
        }
        let (limiter, admitted) = (limiter.clone(), Arc::clone(&admitted));
        let was_alone = Arc::clone(&was_alone);
        asked.spawn(async move {
            let decision = limiter.check("everybody").await.unwrap();
            if decision.allowed {
                let now = UNIX_EPOCH.elapsed().unwrap().as_micros();
                admitted.lock().unwrap().push(now);
            }
            match decision.source {
                Source::Local if !was_alone.swap(true, Relaxed) => println!("\nalone"),
                Source::Backend if was_alone.swap(false, Relaxed) => println!("\nreturned"),
                _ => {}
            }
        });
        while asked.try_join_next().is_some() {}
    }
    for time in admitted.lock().unwrap().iter() {
        println!("\nadmitted {time}");
    }
}
