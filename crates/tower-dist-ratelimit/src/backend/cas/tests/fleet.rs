//! Several machines whose clocks differ, over one store, in virtual time.

use super::*;

/// The clock of a machine that is this many milliseconds ahead.
fn ahead<const MILLIS: u64>() -> u64 {
    tokio_clock() + MILLIS * 1_000_000
}

fn machine(store: &Store, clock: fn() -> u64) -> CasBackend<Store> {
    let mut machine = CasBackend::new(store.clone());
    machine.tasks.clock = clock;
    machine
}

/// When requests were admitted that machines with these clocks made for 20 s, each one every 20 ms or so.
async fn admitted(policy: &dyn Fn() -> Policy, clocks: [fn() -> u64; 4]) -> Vec<Instant> {
    let delay = Duration::from_millis(1);
    let store = Store::new(Script {
        delay,
        ..Script::default()
    });
    let end = Instant::now() + Duration::from_secs(20);
    let mut tasks = tokio::task::JoinSet::new();
    for (clock, number) in clocks.into_iter().zip(0_u64..) {
        let backend = machine(&store, clock);
        let id = backend.register(&[policy()]).unwrap()[0];
        tasks.spawn(async move {
            let mut admitted = Vec::new();
            let mut pauses = (1..=7)
                .map(|n| Duration::from_millis(n * (5 + number)))
                .cycle();
            while Instant::now() < end {
                let verdict = ask(&backend, Charge::new(id, b"k", 1)).await.unwrap();
                if verdict.allowed {
                    admitted.push(Instant::now());
                }
                tokio::time::sleep(pauses.next().unwrap()).await;
            }
            admitted
        });
    }
    let mut all = tasks.join_all().await.concat();
    all.sort();
    all
}

/// The largest number of requests above this bound, in any time between two of them.
fn excess(admitted: &[Instant], most: impl Fn(Duration) -> u64) -> u64 {
    let from = |first: usize| {
        let counted = admitted[first..].iter().zip(1_u64..);
        counted.map(move |(&last, count)| (last - admitted[first], count))
    };
    let times = (0..admitted.len()).flat_map(from);
    let excess = times.map(|(time, count)| count.saturating_sub(most(time)));
    excess.max().unwrap_or_default()
}

/// A policy, and the most requests that it admits in a time.
type Case<'a> = (&'a dyn Fn() -> Policy, &'a dyn Fn(Duration) -> u64);

/// The bound that the docs state. The times of two answers differ by at most their round trips.
#[tokio::test(start_paused = true)]
async fn clocks_that_differ_admit_the_tokens_of_that_much_more_time() {
    const SKEW: Duration = Duration::from_millis(700);
    const TRIPS: Duration = Duration::from_millis(60);
    let quota = Quota::per_second(10);
    let bucket = |time: Duration| 11 + u64::try_from(time.as_millis() / 100).unwrap();
    let strict = |time: Duration| 40 * (u64::try_from(time.as_millis() / 4000).unwrap() + 1);
    let fixed = |time: Duration| 10 * (time.as_secs() + 2);
    let cases: [Case<'_>; 4] = [
        (&|| Policy::new("bucket", quota), &bucket),
        (&|| Policy::new("queue", quota).leaky_queue(SKEW), &bucket),
        (
            &|| Policy::new("first", quota).fixed_window_from_first_request(),
            &fixed,
        ),
        (
            &|| {
                Policy::new("strict", Quota::new(40, Duration::from_secs(4)))
                    .sliding_window_strict(4)
            },
            &strict,
        ),
    ];
    for (policy, most) in cases {
        let skewed = admitted(policy, [ahead::<0>, ahead::<300>, ahead::<700>, ahead::<0>]).await;
        assert_eq!(
            excess(&skewed, |time| most(time + SKEW + TRIPS)),
            0,
            "{:?}",
            policy()
        );
        let exact = admitted(policy, [tokio_clock; 4]).await;
        assert_eq!(
            excess(&exact, |time| most(time + TRIPS)),
            0,
            "{:?} by one clock",
            policy()
        );
        assert!(exact.len() >= 150, "{:?}: {}", policy(), exact.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_a_year_ahead_blocks_a_key_for_no_longer_than_two_windows() {
    let window = Duration::from_millis(1500);
    for policy in [
        Policy::fixed_window_from_first_request,
        Policy::sliding_window,
        Policy::sliding_window_log,
    ] {
        let store = Store::default();
        let policy = || policy(Policy::new("p", Quota::new(1, window)));
        let ahead = machine(&store, ahead::<31_536_000_000>);
        let id = ahead.register(&[policy()]).unwrap()[0];
        assert!(ask(&ahead, Charge::new(id, b"k", 1)).await.unwrap().allowed);
        let right = machine(&store, tokio_clock);
        let id = right.register(&[policy()]).unwrap()[0];
        assert!(!ask(&right, Charge::new(id, b"k", 1)).await.unwrap().allowed);
        tokio::time::sleep(4 * window + Duration::from_secs(3)).await;
        assert!(
            ask(&right, Charge::new(id, b"k", 1)).await.unwrap().allowed,
            "{:?}",
            policy()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_refund_after_the_clock_jumped_back_keeps_a_value_no_longer_than_it_drains() {
    let store = Store::default();
    let policy = || Policy::new("p", Quota::per_minute(60));
    let before = machine(&store, ahead::<3_600_000>);
    let id = before.register(&[policy()]).unwrap()[0];
    let all = Charge::new(id, b"k", 60);
    assert!(ask(&before, all).await.unwrap().allowed);
    assert_eq!(store.last_ttl(), Duration::from_secs(61));
    let after = machine(&store, tokio_clock);
    let id = after.register(&[policy()]).unwrap()[0];
    let Answer::Later(refund) = after.settle(&[Charge::new(id, b"k", 60)], -20) else {
        panic!("a store answers later");
    };
    refund.await.unwrap();
    assert_eq!(store.last_ttl(), Duration::from_secs(41));
    tokio::time::advance(Duration::from_secs(41)).await;
    assert_eq!(remaining(&after, id).await, 60);
}
