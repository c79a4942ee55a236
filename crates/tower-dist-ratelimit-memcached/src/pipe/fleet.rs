//! Several machines and one server, in virtual time: what clocks that differ, and answers that take their time, let
//! through.

use std::{rc::Rc, sync::Arc, time::Duration};

use tokio::{
    io::{duplex, split},
    sync::{mpsc, oneshot},
    task::{LocalSet, spawn_local},
    time::{Instant, sleep},
};
use tower_dist_ratelimit::{
    Policy, Quota,
    backend::{Charge, JointDecision, PolicyId, toolkit::tag},
};

use super::{
    Pipe,
    store::{Store, clock},
};
use crate::{
    clock::Clock,
    counted::Counted,
    job::{Counting, Job, Verb},
};

/// A process that asks about one key.
#[derive(Clone)]
struct Machine {
    inbox: mpsc::Sender<Job>,
    counted: Arc<Counted>,
}

impl Machine {
    fn new(store: &Rc<Store>, policy: &Policy, clock: Clock, latency: Duration) -> Self {
        let (client, server) = duplex(1 << 16);
        let (inbox, mut jobs) = mpsc::channel(64);
        let store = Rc::clone(store);
        spawn_local(async move { store.serve(server, latency).await });
        spawn_local(async move {
            let (read, write) = split(client);
            let mut pipe = Pipe::new(Duration::from_secs(5), clock);
            pipe.run(read, write, &mut jobs).await
        });
        let counted = Counted::new("rl", policy).unwrap().unwrap();
        Self {
            inbox,
            counted: Arc::new(counted),
        }
    }

    async fn take(&self) -> JointDecision {
        let (answer, receiver) = oneshot::channel();
        let charge = Charge::new(PolicyId::new(0), b"", 1);
        let rule = Arc::clone(&self.counted);
        let job = Counting::new(rule, tag(b"k"), Verb::Acquire, charge, answer);
        assert!(self.inbox.try_send(Job::Count(Box::new(job))).is_ok());
        receiver.await.unwrap().unwrap()
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// When requests were admitted that machines with such clocks make for so long, each one every 20 ms or so: when they
/// asked, and when they were told.
async fn admitted(policy: &Policy, clocks: &[Clock]) -> Vec<(Instant, Instant)> {
    const LONG: Duration = Duration::from_secs(20);
    let store = Rc::default();
    let end = Instant::now() + LONG;
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

/// The most by which more was admitted in any time than this allows for it.
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

/// As many windows of a second as such a time can touch.
fn windows(time: Duration) -> u64 {
    u64::try_from(time.as_nanos() / 1_000_000_000).unwrap() + 2
}

/// The bound that the docs of the backend state.
#[tokio::test(start_paused = true)]
async fn clocks_that_differ_admit_what_the_algorithm_would_in_so_much_more_time() {
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
                let exact = admitted(&policy, &[clock::<0> as Clock; 4]).await;
                assert_eq!(excess(&exact, most), 0, "{} by one clock", policy.name());
                assert!(exact.len() >= 150, "{}: {}", policy.name(), exact.len());
            }
        })
        .await;
}

/// A window that is full admits nobody because it ends before the answer comes.
#[tokio::test(start_paused = true)]
async fn an_answer_from_beyond_the_end_of_a_window_is_decided_by_the_window_that_was_charged() {
    let quota = Quota::per_minute(5);
    let local = LocalSet::new();
    local
        .run_until(async {
            {
                let policy = Policy::new("fixed", quota).fixed_window();
                let store = Rc::default();
                let machine = Machine::new(&store, &policy, clock::<0>, millis(100));
                // Whole minutes from the beginning of time; then to just before the next.
                let into = Duration::from_nanos((clock::<0>().nanos) % 60_000_000_000);
                sleep(Duration::from_millis(119_900) - into).await;
                let asks = (0..40).map(|_| {
                    let machine = machine.clone();
                    spawn_local(async move { machine.take().await.allowed })
                });
                let mut allowed = 0;
                for ask in asks.collect::<Vec<_>>() {
                    allowed += u64::from(ask.await.unwrap());
                }
                // Five of the window that ends, and five of the next.
                assert!((5..=10).contains(&allowed), "{allowed}");
            }
        })
        .await;
}
