//! The scripts beside the algorithms in Rust: the same requests at the same times, on a real server whose clock is an
//! argument.

use std::{cell::RefCell, sync::Arc, time::Duration};

use proptest::prelude::*;
use tests::servers::{Redis, Reply, Resp};

use super::{
    batch::said,
    call::{Asked, Verb},
    key::{Tag, tag},
    reply::{NUMBERS, verdict},
    script::{Rule, Script},
};
use crate::{
    Algorithm, Decision, Policy, Quota,
    algorithm::{Ask, tests::key::Key},
    backend::{Charge, PolicyId},
};

/// Where traces begin: an hour in 2023, so that times are as large as they are in service.
const START: u64 = 1_700_000_000_000_000;

/// The time is the last argument.
const CLOCK: &str = "local now = tonumber(ARGV[#ARGV])\n";

/// Keys outlive a trace, whatever it says that the time is.
const SLACK: u64 = 600_000;

/// A server for the tests of this thread, and a connection to it.
struct Lab {
    _server: Redis,
    resp: RefCell<Resp>,
}

impl Lab {
    fn new() -> Self {
        let server = Redis::start();
        let resp = RefCell::new(Resp::connect(server.port()).unwrap());
        Self {
            _server: server,
            resp,
        }
    }

    fn call(&self, command: &[&str]) -> Reply {
        self.resp.borrow_mut().call(command).unwrap()
    }

    /// Forgets all keys.
    fn clear(&self) {
        self.call(&["FLUSHALL"]);
    }

    /// Runs a script at this time, over as many requests as there are rows of asks.
    fn run(&self, script: &Script, now: u64, requests: &[Vec<Asked>]) -> Vec<i64> {
        let asks = || requests.iter().flat_map(|asks| asks.iter().zip(&script.rules));
        let keys = asks().map(|(ask, rule)| {
            let mut key = Vec::new();
            rule.keys.write(&ask.tag, &mut key);
            String::from_utf8(key).unwrap()
        });
        // The time is an argument more: so what is the same for two looks like what is there for each.
        let shared = said(asks().map(|(ask, _)| ask));
        let texts: Vec<&[u8]> = match asks().count() {
            3.. => shared.collect(),
            _ => asks().map(|(ask, _)| &ask.text[..]).collect(),
        };
        let texts = texts.into_iter().map(|text| String::from_utf8(text.to_vec()).unwrap());
        let mut command = vec!["EVAL".to_owned(), script.lua.clone(), asks().count().to_string()];
        command.extend(keys);
        command.extend(texts);
        command.push(now.to_string());
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        match self.call(&command) {
            Reply::List(numbers) => numbers
                .into_iter()
                .map(|number| match number {
                    Reply::Int(number) => number,
                    other => panic!("{other:?}"),
                })
                .collect(),
            other => panic!("{other:?}"),
        }
    }
}

fn policy(name: &str, algorithm: Algorithm, quota: Quota, dynamic: bool) -> Policy {
    let policy = Policy::new(name, quota);
    let policy = policy.counted(algorithm);
    if dynamic { policy.dynamic_quotas() } else { policy }
}

fn rule(policy: &Policy) -> Arc<Rule> {
    Arc::new(Rule::new("rl", policy).unwrap())
}

fn script(rules: Vec<Arc<Rule>>) -> Script {
    Script::with_clock(rules, CLOCK, SLACK)
}

/// Sixteen bits of a key's hash, where the scripts take them from.
fn phase_bits(tag: &Tag) -> u64 {
    let digits = std::str::from_utf8(&tag[..4]).unwrap();
    u64::from_str_radix(digits, 16).unwrap() << 48
}

/// One thing that happens to a key.
#[derive(Clone, Debug)]
struct Step {
    /// In microseconds since the one before; negative when the clock jumps back.
    wait: i64,
    cost: u64,
    want: u64,
    /// Instead of a request.
    settle: Option<i64>,
    quota: Option<Quota>,
}

const ALGORITHMS: [Algorithm; 10] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::LeakyQueue { max_wait: Duration::from_millis(777) },
    Algorithm::FixedWindow { phase_per_key: false },
    Algorithm::FixedWindow { phase_per_key: true },
    Algorithm::FirstHit,
    Algorithm::TwoWindows,
    Algorithm::SubWindows { count: 5 },
    Algorithm::WholeSubWindows { count: 8 },
    Algorithm::SlidingLog,
];

/// Windows in microseconds that all sub-windows and phases divide; a limit; for buckets a burst.
fn quota(algorithm: Algorithm) -> impl Strategy<Value = Quota> {
    let windows = prop::sample::select(vec![65_536_000, 655_360, 2_621_440_000, 86_507_520_000]);
    (1_u64..200, windows, 1_u64..50).prop_map(move |(limit, window, burst)| {
        let quota = Quota::new(limit, Duration::from_micros(window));
        match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => quota.burst(burst),
            _ => quota,
        }
    })
}

fn steps(quota: Quota) -> impl Strategy<Value = Vec<Step>> {
    let window = i64::try_from(quota.window().as_micros()).unwrap();
    let token = window / quota.limit().cast_signed() + 1;
    let wait = prop_oneof![
        3 => Just(0),
        6 => 0..=2 * token,
        2 => 0..=window,
        1 => 0..=3 * window,
        1 => -window..=0,
    ];
    let burst = quota.burst_size();
    let cost = prop_oneof![0..=2_u64, 0..=burst + 1];
    let settle = prop::option::weighted(0.15, -burst.cast_signed() - 1..=burst.cast_signed() / 2 + 1);
    let other = (0_u64..300, 1_u64..100).prop_map(move |(limit, burst)| {
        let other = Quota::new(limit, quota.window());
        if quota.burst_size() == quota.limit() { other } else { other.burst(burst) }
    });
    // Those of a policy whose quota is fixed leave it out.
    let other = prop::option::weighted(0.3, other);
    let step = (wait, cost, 0..=burst + 2, settle, other).prop_map(
        |(wait, cost, want, settle, quota)| Step { wait, cost, want, settle, quota },
    );
    // What is refunded in full is deleted here, and there it stands at the present time, which is another thing only to
    // a clock that jumps back before it: so traces have one or the other.
    (prop::collection::vec(step, 1..40), any::<bool>()).prop_map(|(mut steps, jumps)| {
        for step in &mut steps {
            if jumps {
                step.settle = None;
            } else {
                step.wait = step.wait.max(0);
            }
        }
        steps
    })
}

type Trace = (Algorithm, bool, Quota, Vec<Step>);

fn trace() -> impl Strategy<Value = Trace> {
    (prop::sample::select(&ALGORITHMS[..]), any::<bool>())
        .prop_flat_map(|(algorithm, dynamic)| (Just(algorithm), Just(dynamic), quota(algorithm)))
        .prop_flat_map(|(algorithm, dynamic, quota)| {
            (Just(algorithm), Just(dynamic), Just(quota), steps(quota))
        })
}

/// Whether two waits are the same: ours in whole microseconds, rounded up; theirs in nanoseconds, which may be rounded
/// up or down by one. After changes of the quota both have rounded what was used up to units of their own: that is more
/// by a share.
fn same_wait(ours: Duration, theirs: Duration, changes: bool) -> bool {
    // By a limit of zero nothing drains: both say decades, each as many as it can count.
    let never = Duration::from_secs(1_000_000_000);
    if ours.min(theirs) > never {
        return true;
    }
    let (ours, theirs) = (ours.as_nanos(), theirs.as_nanos());
    let up = |nanos: u128| nanos.div_ceil(1000) * 1000;
    let around = if changes { 2_000 + theirs / 100_000_000_000 } else { 1 };
    (up(theirs.saturating_sub(around))..=up(theirs + around)).contains(&ours)
}

fn same(ours: &Decision, theirs: &Decision, changes: bool) -> bool {
    let wait = match (ours.retry_after, theirs.retry_after) {
        (Some(ours), Some(theirs)) => same_wait(ours, theirs, changes),
        (ours, theirs) => ours == theirs,
    };
    wait && (ours.allowed, ours.limit, ours.remaining, ours.granted)
        == (theirs.allowed, theirs.limit, theirs.remaining, theirs.granted)
        && same_wait(ours.reset_after, theirs.reset_after, changes)
        && same_wait(ours.delay, theirs.delay, changes)
}

/// Requests that were decided in Rust and go to the script together.
#[derive(Default)]
struct Pending {
    asks: Vec<Vec<Asked>>,
    decisions: Vec<(Decision, u64)>,
}

impl Pending {
    fn compare(&mut self, lab: &Lab, script: &Script, now: u64) -> Result<(), TestCaseError> {
        if self.asks.is_empty() {
            return Ok(());
        }
        let numbers = lab.run(script, now, &self.asks);
        prop_assert_eq!(numbers.len(), self.decisions.len() * NUMBERS);
        for (numbers, (theirs, limit)) in numbers.chunks_exact(NUMBERS).zip(&self.decisions) {
            let ours = verdict(numbers, &[*limit]).decisions[0];
            prop_assert!(same(&ours, theirs, script.rules[0].dynamic), "at {now}: redis {ours:?}, rust {theirs:?}");
        }
        *self = Self::default();
        Ok(())
    }
}

fn follow(lab: &Lab, (algorithm, dynamic, quota, steps): &Trace) -> Result<(), TestCaseError> {
    lab.clear();
    let rule = rule(&policy("one", *algorithm, *quota, *dynamic));
    let script = script(vec![Arc::clone(&rule)]);
    let (id, name) = (PolicyId::new(0), b"someone");
    let mut key = Key::with_bits(*algorithm, *quota, *dynamic, phase_bits(&tag(name)));
    let mut now = START;
    let mut pending = Pending::default();
    for step in steps {
        if step.wait != 0 {
            // What happens at one time goes out together.
            pending.compare(lab, &script, now)?;
            now = now.saturating_add_signed(step.wait);
        }
        if let Some(delta) = step.settle {
            key.settle(now * 1000, delta);
            let charge = Charge::new(id, name, u64::MAX);
            let asked = Asked::new(&charge, &rule, Verb::Settle(delta)).unwrap();
            pending.asks.push(vec![asked]);
            continue;
        }
        let quota = step.quota.filter(|_| *dynamic);
        let ask = Ask { cost: step.cost, want: step.want, quota: quota.as_ref() };
        let decision = key.charge_by(now * 1000, &ask);
        let charge = Charge { quota, ..Charge::new(id, name, step.cost).want(step.want) };
        let asked = Asked::new(&charge, &rule, Verb::Acquire).unwrap();
        pending.asks.push(vec![asked]);
        pending.decisions.push((decision, rule.limit(quota)));
    }
    pending.compare(lab, &script, now)
}

#[test]
fn scripts_decide_as_the_algorithms_in_rust_do() {
    let lab = Lab::new();
    let config = ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::with_cases(1000)
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner.run(&trace(), |trace| follow(&lab, &trace)).unwrap();
}
