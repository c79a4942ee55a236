//! Calls, drops and moves in any order.

use proptest::prelude::*;

use super::*;

/// A call and its caller's behaviour. Times are in units of 10 ms.
#[derive(Clone, Copy, Debug)]
struct Caller {
    /// Time since the previous call.
    comes: u64,
    key: u64,
    cost: u64,
    /// Dropped this many and a half units after the call.
    dropped: Option<u64>,
    /// Polled first by another task, whose waker is gone.
    moved: bool,
}

const BURST: u64 = 4;

fn callers() -> impl Strategy<Value = Vec<Caller>> {
    let comes = prop_oneof![3 => Just(0), 3 => 0..6_u64, 1 => 0..60_u64];
    let dropped = prop::option::weighted(0.3, prop_oneof![Just(0), 0..110_u64]);
    let one = (comes, 0..2_u64, 1..=BURST, dropped, any::<bool>());
    let one = one.prop_map(|(comes, key, cost, dropped, moved)| Caller {
        comes,
        key,
        cost,
        dropped,
        moved,
    });
    prop::collection::vec(one, 1..30)
}

/// The end of a call. Times are in milliseconds.
#[derive(Clone, Copy, Debug)]
enum End {
    Passed(u64),
    Rejected(u64),
    Dropped(u64),
}

impl End {
    fn at(self) -> u64 {
        match self {
            Self::Passed(at) | Self::Rejected(at) | Self::Dropped(at) => at,
        }
    }
}

/// Makes the calls and returns when each came and how it ended.
async fn run(store_delay: Option<Duration>, callers: &[Caller]) -> Vec<(u64, End)> {
    let layer = match store_delay {
        None => layer(Memory::default(), ten(BURST)),
        Some(delay) => layer(Remote::after(delay), ten(BURST)),
    };
    let mut service = layer.layer(inner(&Log::default()));
    let started = Instant::now();
    let millis = move || u64::try_from(started.elapsed().as_millis()).unwrap();
    let mut all = Vec::new();
    for (number, caller) in (0..).zip(callers) {
        sleep(Duration::from_millis(caller.comes * 10)).await;
        let came = millis();
        let mut call = Box::pin(service.call(Call(number, caller.key, caller.cost)));
        if caller.moved {
            use futures_util::FutureExt;
            // A call that is ready immediately is not moved.
            if let Some(result) = (&mut call).now_or_never() {
                let end = if result.is_ok() {
                    End::Passed(came)
                } else {
                    End::Rejected(came)
                };
                all.push((came, tokio::spawn(async move { end })));
                continue;
            }
        }
        let patience = caller.dropped.map_or(Duration::from_secs(3600), |tens| {
            Duration::from_millis(tens * 10 + 5)
        });
        let end = async move {
            match timeout(patience, call).await {
                Ok(Ok(_)) => End::Passed(millis()),
                Ok(Err(LimitError::RateLimited(rejected))) => {
                    assert_eq!(rejected.reason(), Reason::TooLong);
                    End::Rejected(millis())
                }
                Ok(Err(LimitError::Inner(error))) => panic!("{error}"),
                Err(_) => End::Dropped(millis()),
            }
        };
        all.push((came, tokio::spawn(end)));
    }
    let mut ends = Vec::new();
    for (came, end) in all {
        ends.push((came, end.await.unwrap()));
    }
    ends
}

/// Models when the head of the queue can go, in milliseconds: a burst of four, and one token per 100 ms.
struct Bucket {
    full_at: u64,
}

impl Bucket {
    fn turn(&self, first_since: u64, cost: u64) -> u64 {
        // The call goes as soon as the bucket holds its cost.
        first_since.max((self.full_at + cost * 100).saturating_sub(BURST * 100))
    }

    fn take(&mut self, at: u64, cost: u64) {
        self.full_at = self.full_at.max(at) + cost * 100;
    }
}

fn block_on<T>(run: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(run)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Each call goes exactly when all earlier ones have gone or left and its tokens are available.
    #[test]
    fn remaining_calls_go_in_order_and_at_the_first_moment_when_others_leave(callers in callers()) {
        let ends = block_on(run(None, &callers));
        for key in 0..2 {
            let mut bucket = Bucket { full_at: 0 };
            let mut first_since = 0;
            for (caller, &(came, end)) in callers.iter().zip(&ends).filter(|(one, _)| one.key == key) {
                let turn = bucket.turn(first_since.max(came), caller.cost);
                let latest = came + 1_000;
                match end {
                    End::Passed(at) => {
                        prop_assert_eq!(at, turn, "{:?} came {}", caller, came);
                        prop_assert!(at <= latest);
                        bucket.take(at, caller.cost);
                    }
                    End::Rejected(at) => {
                        prop_assert!(at <= latest);
                        // A call that was dropped later may have been ahead of it when it was rejected.
                        let left = ends.iter().any(|(_, end)| matches!(end, End::Dropped(then) if *then > at));
                        prop_assert!(turn > latest || left, "{:?} came {}: {:?}, but {}", caller, came, end, turn);
                    }
                    End::Dropped(at) => prop_assert!(at <= turn, "{:?} came {}: {}", caller, came, turn),
                }
                first_since = first_since.max(end.at());
            }
        }
    }

    /// A slow backend delays calls but loses none: all end in time, and no token is lost.
    #[test]
    fn calls_that_leave_during_a_backend_request_strand_no_other_call(callers in callers(), delay in 1_u64..45) {
        let ends = block_on(run(Some(Duration::from_millis(delay)), &callers));
        for key in 0..2 {
            let (mut passed, mut last) = (Vec::new(), 0);
            for (caller, &(came, end)) in callers.iter().zip(&ends).filter(|(one, _)| one.key == key) {
                // The turn comes in time, and the backend's answer a little later.
                prop_assert!(end.at() <= came + 1_000 + 50 + delay, "{caller:?} came {came}: {end:?}");
                if let End::Passed(at) = end {
                    passed.push((at, caller.cost));
                    last = last.max(at);
                }
            }
            passed.sort_unstable();
            let mut bucket = Bucket { full_at: 0 };
            for (at, cost) in passed {
                // The backend charges the call when it receives the request.
                prop_assert!(at >= bucket.turn(0, cost), "{at}");
                bucket.take(at - delay, cost);
            }
        }
    }
}
