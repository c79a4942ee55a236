//! Several machines and one server, in virtual time: the requests that different clocks and slow answers admit.

use std::rc::Rc;

use tokio::{
    task::{LocalSet, spawn_local},
    time::sleep,
};

use super::{
    store::{Store, clock},
    *,
};

/// A process that charges one key.
#[derive(Clone)]
struct Machine(Operation);

impl Machine {
    fn new(store: &Rc<Store>, policy: &Policy, clock: WallClock, latency: Duration) -> Self {
        let (client, server) = duplex(1 << 16);
        let (link, mut jobs) = Link::channel(Health::up(), 64);
        let store = Rc::clone(store);
        spawn_local(async move { store.serve(server, latency).await });
        spawn_local(async move {
            let (read, write) = split(client);
            let mut pipeline = Pipeline::new(Duration::from_secs(5));
            pipeline.run(read, write, &mut jobs).await
        });
        Self(Operation {
            clock,
            charge: Charge::new(PolicyId::new(0), b"", 1),
            ..operation(&link, policy, OperationKind::Acquire)
        })
    }

    async fn take(&self) -> JointDecision {
        self.0.clone().ask().unwrap().await.unwrap()
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the admitted requests of machines with these clocks, each with the times of its call and of its verdict.
/// Each machine makes a request every 20 ms or so.
async fn admitted(policy: &Policy, clocks: &[WallClock]) -> Vec<(Instant, Instant)> {
    const TEST: Duration = Duration::from_secs(20);
    let store = Rc::default();
    let end = Instant::now() + TEST;
    let tasks: Vec<_> = clocks
        .iter()
        .zip(0..)
        .map(|(&clock, number)| {
            let machine = Machine::new(&store, policy, clock, millis(1 + number));
            spawn_local(async move {
                let mut admitted = Vec::new();
                let mut pause = (1..=7).map(|n| millis(n * (5 + number))).cycle();
                while Instant::now() < end {
                    let asked = Instant::now();
                    if machine.take().await.allowed {
                        admitted.push((asked, Instant::now()));
                    }
                    sleep(pause.next().unwrap()).await;
                }
                admitted
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    all.sort();
    all
}

/// Returns by how much the admitted requests exceed `most` in any span of time.
fn excess(admitted: &[(Instant, Instant)], most: impl Fn(Duration) -> u64) -> u64 {
    let excess = admitted.iter().enumerate().map(|(first, (began, _))| {
        let mut ends: Vec<Instant> = admitted[first..].iter().map(|(_, told)| *told).collect();
        ends.sort();
        let counted = ends.iter().zip(1_u64..);
        let over = counted.map(|(told, count)| count.saturating_sub(most(*told - *began)));
        over.max().unwrap_or_default()
    });
    excess.max().unwrap_or_default()
}

/// Returns the maximum number of windows of a second that this time can touch.
fn windows(time: Duration) -> u64 {
    u64::try_from(time.as_nanos() / 1_000_000_000).unwrap() + 2
}

/// The bound that the docs of the backend state.
#[tokio::test(start_paused = true)]
async fn clocks_that_differ_by_a_skew_admit_at_most_what_the_algorithm_admits_in_a_span_longer_by_the_skew()
 {
    const SKEW: Duration = Duration::from_millis(700);
    let quota = Quota::per_second(10);
    let most = |time| 10 * windows(time);
    let cases = [
        Policy::new("fixed", quota).fixed_window(),
        Policy::new("staggered", quota).fixed_window_staggered(),
    ];
    let local = LocalSet::new();
    local
        .run_until(async {
            for policy in cases {
                let skewed = [clock::<0>, clock::<300>, clock::<700>, clock::<0>];
                let skewed = admitted(&policy, &skewed).await;
                let over = excess(&skewed, |time| most(time + SKEW));
                assert_eq!(over, 0, "{}", policy.name());
                let exact = admitted(&policy, &[clock::<0> as WallClock; 4]).await;
                assert_eq!(excess(&exact, most), 0, "{} by one clock", policy.name());
                assert!(exact.len() >= 150, "{}: {}", policy.name(), exact.len());
            }
        })
        .await;
}

/// A full window stays full for an answer that arrives after its end.
#[tokio::test(start_paused = true)]
async fn an_answer_that_arrives_after_the_end_of_a_window_is_decided_by_the_charged_window() {
    let quota = Quota::per_minute(5);
    let local = LocalSet::new();
    local
        .run_until(async {
            {
                let policy = Policy::new("fixed", quota).fixed_window();
                let store = Rc::default();
                let machine = Machine::new(&store, &policy, clock::<0>, millis(100));
                // Windows begin at whole minutes. The requests start just before the second one.
                let into = Duration::from_nanos(clock::<0>() % 60_000_000_000);
                sleep(Duration::from_millis(119_900) - into).await;
                let asks = (0..40).map(|_| {
                    let machine = machine.clone();
                    spawn_local(async move { machine.take().await.allowed })
                });
                let mut allowed = 0;
                for ask in asks.collect::<Vec<_>>() {
                    allowed += u64::from(ask.await.unwrap());
                }
                // The window that ends admits 5 requests, and so does the next window.
                assert!((5..=10).contains(&allowed), "{allowed}");
            }
        })
        .await;
}
