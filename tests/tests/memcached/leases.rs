//! Leases on Memcached, over compare-and-swap and over counters.

use std::time::Duration;

use tests::servers::{Memcached as Server, Proxy};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tower_dist_ratelimit::{
    Consistency, FailureMode, Limiter, LimiterBuilder, Policy, Quota, Source,
};
use tower_dist_ratelimit_memcached::Memcached;

use crate::support::{LONG, connect, until};

const INSTANCES: usize = 4;
const TASKS: usize = 4;
const LEASE: Duration = Duration::from_millis(400);
const TIME: Duration = Duration::from_secs(3);

/// Tokens in a window of one second, or tokens per second of a bucket.
const RATE: u64 = 1_000;
const BURST: u64 = 200;

fn leasing(memcached: Memcached, policy: Policy, lease: Duration) -> LimiterBuilder {
    Limiter::builder(memcached, policy).consistency(Consistency::Leased(lease))
}

/// An admitted request: the time of its decision, and the decision's latency.
type Admitted = (Instant, Duration);

/// Runs leasing instances, each with its own connection, at four times the limit of one key. Returns the admitted
/// requests and the numbers of decisions and commands.
async fn fleet(policy: fn() -> Policy) -> (Vec<Admitted>, u64, u64) {
    let server = Server::start();
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        let builder = leasing(connect(&server.url()).await, policy(), LEASE);
        let builder = builder
            .failure_mode(FailureMode::Closed)
            .backend_timeout(LONG);
        instances.push(builder.build().unwrap());
    }
    let (before, end) = (server.commands(), Instant::now() + TIME);
    let mut tasks = JoinSet::new();
    for limiter in (0..TASKS).flat_map(|_| &instances) {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let (mut admitted, mut decided) = (Vec::new(), 0);
            while Instant::now() < end {
                let asked = Instant::now();
                if limiter.check("hot").await.unwrap().allowed {
                    admitted.push((Instant::now(), asked.elapsed()));
                }
                decided += 1;
                sleep(Duration::from_millis(3)).await;
            }
            (admitted, decided)
        });
    }
    let (mut admitted, mut decided) = (Vec::new(), 0);
    while let Some(task) = tasks.join_next().await {
        let (more, decisions) = task.unwrap();
        admitted.extend(more);
        decided += decisions;
    }
    admitted.sort();
    (admitted, decided, server.commands() - before)
}

/// The maximum, over all intervals, of admitted requests minus `most` for that interval and one lease. The server
/// counted a decision earlier than this process saw it: by at most a lease or the latency of the decision.
fn excess(admitted: &[Admitted], most: impl Fn(Duration) -> u64) -> u64 {
    let late = admitted.iter().map(|&(_, took)| took).max();
    let slack = LEASE.max(late.unwrap_or_default());
    let all = admitted
        .iter()
        .enumerate()
        .flat_map(|(first, &(began, _))| {
            let within = admitted[first..].iter().zip(1_u64..);
            within.map(move |(&(told, _), count)| (count, told - began + slack))
        });
    let over = all.map(|(count, time)| count.saturating_sub(most(time)));
    over.max().unwrap_or_default()
}

/// The number of one-second windows that an interval can touch.
fn windows(time: Duration) -> u64 {
    time.as_secs() + 2
}

async fn holds_the_bound(policy: fn() -> Policy, most: impl Fn(Duration) -> u64, least: u64) {
    let (admitted, decided, commands) = fleet(policy).await;
    let name = policy().name().to_owned();
    println!(
        "{name}: {} of {decided} in {commands} commands",
        admitted.len()
    );
    assert_eq!(excess(&admitted, most), 0, "{name}: too many");
    // The full limit, unless the busy machine sent fewer requests.
    let least = least.min(decided) * 8 / 10;
    assert!(
        admitted.len() as u64 >= least,
        "{name}: {} of at least {least}",
        admitted.len()
    );
    assert!(commands * 2 <= decided, "{name}: {commands} for {decided}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_leases_from_a_bucket_admits_at_most_the_tokens_of_the_interval_and_a_lease_time()
 {
    let bucket = || Policy::new("bucket", Quota::per_second(RATE).burst(BURST));
    let earned = |time: Duration| RATE * u64::try_from(time.as_millis()).unwrap() / 1000;
    holds_the_bound(
        bucket,
        move |time| BURST + earned(time) + 1,
        BURST + earned(TIME),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_leases_from_windows_admits_at_most_the_tokens_of_the_interval_and_a_lease_time()
 {
    let fixed = || Policy::new("fixed", Quota::per_second(RATE)).fixed_window();
    holds_the_bound(fixed, |time| RATE * windows(time), 2 * RATE).await;
    let first = || {
        Policy::new("first", Quota::new(RATE, 2 * Duration::from_secs(1)))
            .fixed_window_from_first_request()
    };
    holds_the_bound(first, |time| RATE * windows(time / 2), RATE).await;
    let whole = || Policy::new("whole", Quota::per_second(RATE)).sliding_window_strict(4);
    holds_the_bound(whole, |time| RATE * (time.as_secs() + 1), 2 * RATE).await;
}

/// At most one refill is in flight. A server 100 ms away gets no more requests than that.
#[tokio::test]
async fn a_hot_key_of_a_distant_server_is_decided_immediately_for_a_few_commands() {
    const AWAY: Duration = Duration::from_millis(100);
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let memcached = connect(&format!("memcached://127.0.0.1:{}", proxy.port())).await;
    let second = Duration::from_secs(1);
    let fixed = Policy::new("fixed", Quota::new(1_000_000, 1000 * second)).fixed_window();
    let builder = leasing(memcached, fixed, second).backend_timeout(LONG);
    let limiter = builder.failure_mode(FailureMode::Closed).build().unwrap();
    proxy.delay(AWAY);
    let ask = || async {
        let mut asks = JoinSet::new();
        for _ in 0..20 {
            let limiter = limiter.clone();
            asks.spawn(async move { limiter.check("hot").await.unwrap() });
        }
        asks.join_all().await
    };
    until("leases", || async {
        let all = ask().await;
        let leased = all.iter().all(|one| one.source == Source::Lease);
        leased.then_some(())
    })
    .await;
    let (before, end) = (server.commands(), Instant::now() + 2 * second);
    let (mut decided, mut waited) = (0, 0);
    while Instant::now() < end {
        let all = ask().await;
        decided += all.len();
        waited += all.iter().filter(|one| one.source != Source::Lease).count();
        assert!(all.iter().all(|one| one.allowed));
        sleep(Duration::from_millis(10)).await;
    }
    let commands = server.commands() - before;
    println!("{decided} decisions, {commands} commands, {waited} waited");
    assert!(waited * 20 <= decided, "{waited} of {decided} waited");
    assert!(commands <= 40 + waited as u64, "{commands}");
}

/// A limiter whose hot key is leased for two seconds, and the latest end of that lease.
async fn leased(server: &Server, policy: Policy) -> (Limiter, Instant) {
    const TWO: Duration = Duration::from_secs(2);
    let memcached = Memcached::builder(&server.url()).answer_timeout(Duration::from_millis(200));
    let builder = leasing(memcached.connect().await.unwrap(), policy, TWO);
    let limiter = builder
        .backend_timeout(Duration::from_millis(100))
        .build()
        .unwrap();
    until("a lease", || async {
        for _ in 0..20 {
            limiter.check("hot").await.unwrap();
        }
        let decision = limiter.check("hot").await.unwrap();
        (decision.source == Source::Lease).then_some(())
    })
    .await;
    (limiter, Instant::now() + TWO)
}

fn plenty() -> Policy {
    Policy::new("plenty", Quota::per_second(100_000))
}

/// Sends a few requests until `end`, and returns the sources of their decisions in order.
async fn sources(limiter: &Limiter, end: Instant) -> Vec<Source> {
    let mut sources: Vec<Source> = Vec::new();
    while Instant::now() < end {
        let decision = limiter.check("hot").await.unwrap();
        assert!(decision.allowed);
        if sources.last() != Some(&decision.source) {
            sources.push(decision.source);
        }
        sleep(Duration::from_millis(20)).await;
    }
    sources
}

#[tokio::test]
async fn a_lease_outlives_its_server_until_its_deadline_and_then_this_process_decides() {
    for freezes in [false, true] {
        let mut server = Server::start();
        let (limiter, deadline) = leased(&server, plenty()).await;
        if freezes {
            server.freeze();
        } else {
            server.kill();
        }
        // A key without leased tokens is decided by the local fallback immediately.
        let other = limiter.check("other").await.unwrap();
        assert_eq!(other.source, Source::Local);
        let during = sources(&limiter, deadline + Duration::from_millis(200)).await;
        assert_eq!(during, [Source::Lease, Source::Local], "{freezes}");
        if freezes {
            server.thaw();
        } else {
            server.restart();
        }
        until("leases again", || async {
            let decision = limiter.check("hot").await.unwrap();
            (decision.source == Source::Lease).then_some(())
        })
        .await;
    }
}

/// A lease is spent until its end; the next lease comes from a new count.
#[tokio::test]
async fn a_flush_begins_a_new_count_and_no_lease_outlives_its_deadline() {
    let server = Server::start();
    let hour = Policy::new("hour", Quota::per_hour(300)).fixed_window();
    let (limiter, _) = leased(&server, hour).await;
    server.call("flush_all");
    let mut admitted = 0;
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        admitted += u64::from(limiter.check("hot").await.unwrap().allowed);
        sleep(Duration::from_millis(3)).await;
    }
    // The new count, and at most a quarter of the old count that was leased.
    assert!((200..=300 + 75).contains(&admitted), "{admitted}");
    let exact = Limiter::builder(
        connect(&server.url()).await,
        Policy::new("hour", Quota::per_hour(300)).fixed_window(),
    );
    let exact = exact.backend_timeout(LONG).build().unwrap();
    assert_eq!(exact.peek("hot").await.unwrap().remaining, 0);
    sleep_until(end + LEASE).await;
    assert!(!limiter.check("hot").await.unwrap().allowed);
}
