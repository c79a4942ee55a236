//! The scripts beside the algorithms in Rust: the same requests at the same times, on a real server whose clock is an
//! argument.

use std::{cell::RefCell, sync::Arc, time::Duration};

use proptest::{prelude::*, test_runner::TestRunner};
use tests::servers::{Redis, Reply, Resp};

use super::{
    arguments::{Arguments, words},
    call::{Asked, Call, Verb},
    key::{Tag, tag},
    reply::{Words, verdict},
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
const CLOCK: &str = "local now = tonumber(table.remove(ARGV))\n";

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

    /// Runs a script at this time, as these calls in one.
    fn run(&self, now: u64, calls: &[Call]) -> Vec<Words> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let arguments = Arguments::of(calls);
        let keys = arguments.number_of_keys().to_string();
        let mut command = vec!["EVAL".to_owned(), calls[0].script.lua.clone(), keys];
        arguments.keys(|key| command.push(text(key)));
        command.extend(arguments.asks().map(text));
        command.push(now.to_string());
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let Reply::List(numbers) = self.call(&command) else {
            panic!("{:?}", self.call(&command));
        };
        let numbers: Vec<i64> = numbers
            .into_iter()
            .map(|number| match number {
                Reply::Int(number) => number,
                other => panic!("{other:?}"),
            })
            .collect();
        words(calls, &numbers).unwrap()
    }
}

fn policy(name: &str, algorithm: Algorithm, quota: Quota, dynamic: bool) -> Policy {
    let policy = Policy::new(name, quota);
    let policy = policy.counted(algorithm);
    if dynamic {
        policy.dynamic_quotas()
    } else {
        policy
    }
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
    Algorithm::LeakyQueue {
        max_wait: Duration::from_millis(777),
    },
    Algorithm::FixedWindow {
        phase_per_key: false,
    },
    Algorithm::FixedWindow {
        phase_per_key: true,
    },
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
    let settle =
        prop::option::weighted(0.15, -burst.cast_signed() - 1..=burst.cast_signed() / 2 + 1);
    let other = (0_u64..300, 1_u64..100).prop_map(move |(limit, burst)| {
        let other = Quota::new(limit, quota.window());
        if quota.burst_size() == quota.limit() {
            other
        } else {
            other.burst(burst)
        }
    });
    // Those of a policy whose quota is fixed leave it out.
    let other = prop::option::weighted(0.3, other);
    let step =
        (wait, cost, 0..=burst + 2, settle, other).prop_map(|(wait, cost, want, settle, quota)| {
            Step {
                wait,
                cost,
                want,
                settle,
                quota,
            }
        });
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
    let around = if changes {
        2_000 + theirs / 100_000_000
    } else {
        1
    };
    (up(theirs.saturating_sub(around))..=up(theirs + around)).contains(&ours)
}

fn same(ours: &Decision, theirs: &Decision, changes: bool) -> bool {
    let wait = match (ours.retry_after, theirs.retry_after) {
        (Some(ours), Some(theirs)) => same_wait(ours, theirs, changes),
        (ours, theirs) => ours == theirs,
    };
    wait && (ours.allowed, ours.limit, ours.remaining, ours.granted)
        == (
            theirs.allowed,
            theirs.limit,
            theirs.remaining,
            theirs.granted,
        )
        && same_wait(ours.reset_after, theirs.reset_after, changes)
        && same_wait(ours.delay, theirs.delay, changes)
}

/// Requests that were decided in Rust and go to the script together; with the limits that held.
#[derive(Default)]
struct Pending {
    calls: Vec<Call>,
    decisions: Vec<Option<(Vec<Decision>, Vec<u64>)>>,
}

impl Pending {
    fn compare(&mut self, lab: &Lab, now: u64) -> Result<(), TestCaseError> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let words = lab.run(now, &self.calls);
        for ((call, words), theirs) in self.calls.iter().zip(words).zip(&self.decisions) {
            let Some((theirs, limits)) = theirs else {
                prop_assert!(words.is_empty());
                continue;
            };
            let ours = verdict(&words, limits);
            prop_assert_eq!(ours.decisions.len(), theirs.len());
            for ((ours, theirs), rule) in ours.decisions.iter().zip(theirs).zip(&call.script.rules)
            {
                prop_assert!(
                    same(ours, theirs, rule.dynamic),
                    "at {now}: redis {ours:?}, rust {theirs:?}"
                );
            }
        }
        *self = Self::default();
        Ok(())
    }
}

/// The same numbers by the policy's own window: what converts between windows a hundred thousand times as long is
/// rounding, in either.
fn in_window_of(quota: Quota, other: Quota) -> Quota {
    Quota::new(other.limit(), quota.window()).burst(other.burst_size())
}

/// Policies that are decided together, and a key of each.
struct Together {
    script: Arc<Script>,
    members: Vec<(Key, PolicyId)>,
}

const NAME: &[u8] = b"someone";

impl Together {
    fn new(policies: &[(Algorithm, bool, Quota)]) -> Self {
        let named = policies
            .iter()
            .enumerate()
            .map(|(number, &(algorithm, dynamic, quota))| {
                rule(&policy(&format!("p{number}"), algorithm, quota, dynamic))
            });
        let members = policies.iter().map(|&(algorithm, dynamic, quota)| {
            let key = Key::with_bits(algorithm, quota, dynamic, phase_bits(&tag(NAME)));
            (key, PolicyId::new(0))
        });
        Self {
            script: Arc::new(script(named.collect())),
            members: members.collect(),
        }
    }

    /// What happens at a step: in Rust now, and in the script when the time moves on.
    fn step(&mut self, now: u64, step: &Step, pending: &mut Pending) {
        let rules = Arc::clone(&self.script);
        let rules = &rules.rules;
        let charge = |rule: &Rule, id| match step.settle {
            Some(_) => Charge::new(id, NAME, u64::MAX),
            None => Charge {
                quota: step
                    .quota
                    .filter(|_| rule.dynamic)
                    .map(|other| in_window_of(rule.quota, other)),
                ..Charge::new(id, NAME, step.cost).want(step.want)
            },
        };
        let verb = step.settle.map_or(Verb::Acquire, Verb::Settle);
        let asks = self.members.iter().zip(rules);
        let asks = asks.map(|((_, id), rule)| Asked::new(&charge(rule, *id), rule, verb).unwrap());
        pending.calls.push(Call {
            script: Arc::clone(&self.script),
            asks: asks.collect(),
            settles: step.settle.is_some(),
        });
        if let Some(delta) = step.settle {
            for (key, _) in &mut self.members {
                key.settle(now * 1000, delta);
            }
            pending.decisions.push(None);
            return;
        }
        let charges: Vec<Charge<'_>> = self
            .members
            .iter()
            .zip(rules)
            .map(|((_, id), rule)| charge(rule, *id))
            .collect();
        let ask = |charge: &Charge<'_>| (charge.cost, charge.want, charge.quota);
        let decide = |key: &Key, (cost, want, quota): (u64, u64, Option<Quota>)| {
            key.decide(
                now * 1000,
                &Ask {
                    cost,
                    want,
                    quota: quota.as_ref(),
                },
            )
        };
        let asked: Vec<_> = charges.iter().map(ask).collect();
        let mut decisions: Vec<Decision> = self
            .members
            .iter()
            .zip(&asked)
            .map(|((key, _), &ask)| decide(key, ask))
            .collect();
        let allowed = decisions.iter().all(|decision| decision.allowed);
        for (((key, _), &ask), decision) in self.members.iter_mut().zip(&asked).zip(&mut decisions)
        {
            let (cost, want, quota) = ask;
            if allowed {
                key.take(
                    now * 1000,
                    &Ask {
                        cost,
                        want,
                        quota: quota.as_ref(),
                    },
                    decision.granted,
                );
            } else if decision.allowed {
                *decision = decide(key, (0, 0, quota));
            }
        }
        let limits = rules
            .iter()
            .zip(&charges)
            .map(|(rule, charge)| rule.limit(charge.quota));
        pending.decisions.push(Some((decisions, limits.collect())));
    }
}

fn follow(
    lab: &Lab,
    policies: &[(Algorithm, bool, Quota)],
    steps: &[Step],
) -> Result<(), TestCaseError> {
    lab.clear();
    let mut together = Together::new(policies);
    let mut now = START;
    let mut pending = Pending::default();
    for step in steps {
        if step.wait != 0 {
            // What happens at one time goes out together.
            pending.compare(lab, now)?;
            now = now.saturating_add_signed(step.wait);
        }
        together.step(now, step, &mut pending);
    }
    pending.compare(lab, now)
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::with_cases(cases)
    })
}

#[test]
fn scripts_decide_as_the_algorithms_in_rust_do() {
    let lab = Lab::new();
    runner(2000)
        .run(&trace(), |(algorithm, dynamic, quota, steps)| {
            follow(&lab, &[(algorithm, dynamic, quota)], &steps)
        })
        .unwrap();
}

#[test]
fn a_script_for_several_policies_decides_all_or_nothing_as_rust_does() {
    let lab = Lab::new();
    let one = || {
        (prop::sample::select(&ALGORITHMS[..]), any::<bool>()).prop_flat_map(
            |(algorithm, dynamic)| (Just(algorithm), Just(dynamic), quota(algorithm)),
        )
    };
    let several = prop::collection::vec(one(), 2..5).prop_flat_map(|policies| {
        let shortest = policies.iter().map(|one| one.2).min_by_key(Quota::window);
        (Just(policies), steps(shortest.unwrap()))
    });
    runner(500)
        .run(&several, |(policies, steps)| {
            follow(&lab, &policies, &steps)
        })
        .unwrap();
}
