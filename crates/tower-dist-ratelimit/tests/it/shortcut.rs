//! A single policy in a [`Memory`] is decided by a shortcut that no other backend has. Its observable behaviour equals
//! the general path's.

mod calls;
mod http;
mod limiter;
mod sides;

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use proptest::prelude::*;
use tokio::time::{Instant, advance};
use tower_dist_ratelimit::{
    BuildError, Decision, Event, Observer, Policy, Quota, Rejection,
    backend::{Answer, Backend, BackendError, BoxFuture, Charge, Memory, PolicyId},
};

/// The same backend through the general path.
struct Detour(Arc<Memory>);

impl Backend for Detour {
    fn is_remote(&self) -> bool {
        self.0.is_remote()
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.0.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        self.0.acquire(charges, out)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        self.0.settle(charges, delta)
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        self.0.reset(policy, key)
    }
}

/// Two limits over one memory with the same traffic; the second takes the general path. In one memory, a key has the
/// same place in both tables, and both clocks start together.
fn both<T>(keys: usize, side: impl Fn(Arc<dyn Backend>) -> T) -> [T; 2] {
    let memory = Arc::new(Memory::with_capacity(keys));
    let detour = Detour(Arc::clone(&memory));
    [side(memory), side(Arc::new(detour))]
}

fn play<T>(traffic: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(traffic)
}

/// All events of one side, in order and to the nanosecond.
#[derive(Clone)]
struct Log {
    start: Instant,
    seen: Arc<Mutex<Vec<String>>>,
    /// `retry_after` of the last rejection.
    back: Arc<Mutex<Instant>>,
}

impl Log {
    fn start() -> Self {
        Self {
            start: Instant::now(),
            seen: Arc::default(),
            back: Arc::new(Mutex::new(Instant::now())),
        }
    }

    fn note(&self, what: fmt::Arguments<'_>) {
        let at = self.start.elapsed().as_nanos();
        self.seen.lock().unwrap().push(format!("{at}: {what}"));
    }

    fn all(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    fn rejection(&self, what: &str, rejection: &Rejection<'_>) {
        let decided: Vec<_> = rejection.decided().iter().collect();
        self.come_back(rejection.retry_after());
        self.note(format_args!("{what} {:?} {decided:?}", rejection.reason()));
    }

    fn come_back(&self, wait: Option<Duration>) {
        if let Some(back) = wait.and_then(|wait| Instant::now().checked_add(wait)) {
            *self.back.lock().unwrap() = back;
        }
    }
}

impl Observer for Log {
    fn on_event(&self, _: &Arc<str>, event: Event<'_>) {
        match event {
            Event::Allowed(decided) => {
                let decided: Vec<_> = decided.iter().collect();
                self.note(format_args!("allowed {decided:?}"));
            }
            Event::Rejected(rejected) => self.rejection("rejected", &rejected),
            Event::Shadowed(rejected) => self.rejection("shadowed", &rejected),
            Event::BackendFailed(error) => self.note(format_args!("failed {error}")),
            Event::CircuitOpened(error) => self.note(format_args!("opened {error}")),
            Event::CircuitClosed => self.note(format_args!("closed")),
            Event::Waited(waited) => self.note(format_args!("waited {waited:?}")),
            Event::Cancelled => self.note(format_args!("cancelled")),
            _ => {}
        }
    }
}

/// Settings of a policy that all forms of limits share.
#[derive(Clone, Debug)]
struct Rules {
    counting: Counting,
    quota: Quota,
    burst: u64,
    /// Charges may carry their own quotas, which rule out the shortcut.
    dynamic: bool,
}

#[derive(Clone, Copy, Debug)]
enum Counting {
    Tokens,
    Leaky,
    Queue(Duration),
    Fixed,
    Phases,
    FirstHit,
    TwoWindows,
    Sub(u32),
    Whole(u32),
    Log,
}

impl Rules {
    /// The highest cost of a request.
    fn most(&self) -> u64 {
        match self.counting {
            Counting::Tokens | Counting::Leaky => self.burst,
            _ => self.quota.limit(),
        }
    }

    /// A new policy per call. Its `colocate` label gives it separate counts.
    fn policy(&self) -> Policy {
        static PLACES: AtomicU64 = AtomicU64::new(0);
        let place = PLACES.fetch_add(1, Relaxed).to_string();
        let (smooth, in_windows) = (self.quota.burst(self.burst), self.quota);
        let policy = |quota| Policy::new("p", quota).colocate(place.as_str());
        let policy = match self.counting {
            Counting::Tokens => policy(smooth),
            Counting::Leaky => policy(smooth).leaky_bucket(),
            Counting::Queue(max_wait) => policy(in_windows).leaky_queue(max_wait),
            Counting::Fixed => policy(in_windows).fixed_window(),
            Counting::Phases => policy(in_windows).fixed_window_staggered(),
            Counting::FirstHit => policy(in_windows).fixed_window_from_first_request(),
            Counting::TwoWindows => policy(in_windows).sliding_window(),
            Counting::Sub(count) => policy(in_windows).sliding_window_buckets(count),
            Counting::Whole(count) => policy(in_windows).sliding_window_strict(count),
            Counting::Log => policy(in_windows).sliding_window_log(),
        };
        if self.dynamic {
            policy.dynamic_quotas()
        } else {
            policy
        }
    }
}

fn rules() -> impl Strategy<Value = Rules> {
    let max_wait = (1_u64..3_000).prop_map(Duration::from_millis);
    let counting = prop_oneof![
        3 => Just(Counting::Tokens),
        1 => Just(Counting::Leaky),
        3 => max_wait.prop_map(Counting::Queue),
        2 => Just(Counting::Fixed),
        1 => Just(Counting::Phases),
        1 => Just(Counting::FirstHit),
        1 => Just(Counting::TwoWindows),
        1 => (2_u32..6).prop_map(Counting::Sub),
        1 => (2_u32..6).prop_map(Counting::Whole),
        1 => Just(Counting::Log),
    ];
    let window = prop_oneof![Just(1_000_000_000_u64), 1_000_000_u64..20_000_000_000];
    let quota = (1_u64..12, window)
        .prop_map(|(limit, window)| Quota::new(limit, Duration::from_nanos(window)));
    (counting, quota, 1_u64..20, prop::bool::weighted(0.2)).prop_map(
        |(counting, quota, burst, dynamic)| Rules {
            counting,
            quota,
            burst,
            dynamic,
        },
    )
}

/// The pause before the next turn.
#[derive(Clone, Copy, Debug)]
enum Pause {
    None,
    Nanos(u64),
    /// Until one nanosecond before the last `retry_after`.
    TooShort,
    /// Until the last `retry_after`.
    AsTold,
}

fn pauses() -> impl Strategy<Value = Pause> {
    prop_oneof![
        4 => Just(Pause::None),
        2 => (1_u64..2_000_000_000).prop_map(Pause::Nanos),
        1 => (1_u64..100_000_000_000).prop_map(Pause::Nanos),
        1 => Just(Pause::TooShort),
        1 => Just(Pause::AsTold),
    ]
}

impl Pause {
    async fn wait(self, log: &Log) {
        let back = *log.back.lock().unwrap();
        let left = back.saturating_duration_since(Instant::now());
        let pause = match self {
            Self::None => Duration::ZERO,
            Self::Nanos(nanos) => Duration::from_nanos(nanos),
            Self::TooShort => left.saturating_sub(Duration::from_nanos(1)),
            Self::AsTold => left,
        };
        advance(pause).await;
    }
}

/// Free, usual, and excessive costs.
fn costs() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0_u64),
        6 => Just(1_u64),
        3 => 2_u64..8,
        1 => 8_u64..25,
        1 => Just(u64::MAX),
    ]
}

/// Few enough keys to repeat, and more than the capacity.
fn keys() -> impl Strategy<Value = Option<u8>> {
    prop_oneof![
        8 => (0_u8..2).prop_map(Some),
        2 => any::<u8>().prop_map(Some),
        1 => Just(None),
    ]
}
