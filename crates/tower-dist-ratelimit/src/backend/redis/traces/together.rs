use std::sync::Arc;

use proptest::prelude::*;

use super::{lab::Lab, same::same, step::Step};
use crate::{
    Algorithm, Decision, Policy, Quota,
    algorithm::{Ask, tests::key::Key},
    backend::{
        Charge, PolicyId,
        redis::{
            call::{Asked, Call, Verb},
            key::Tag,
            reply::verdict,
            rule::Rule,
            script::Script,
        },
        tag::tag,
    },
};

/// The time is the last argument.
const CLOCK: &str = "local now = tonumber(table.remove(ARGV))\n";

/// Keys outlive a trace, whatever it says that the time is.
const SLACK: u64 = 600_000;

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

/// Requests that were decided in Rust and go to the script together; with the limits that held.
#[derive(Default)]
pub(super) struct Pending {
    calls: Vec<Call>,
    decisions: Vec<Option<(Vec<Decision>, Vec<u64>)>>,
}

impl Pending {
    pub(super) fn compare(&mut self, lab: &Lab, now: u64) -> Result<(), TestCaseError> {
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
pub(super) struct Together {
    script: Arc<Script>,
    members: Vec<(Key, PolicyId)>,
}

const NAME: &[u8] = b"someone";

impl Together {
    pub(super) fn new(policies: &[(Algorithm, bool, Quota)]) -> Self {
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
    pub(super) fn step(&mut self, now: u64, step: &Step, pending: &mut Pending) {
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
        let asks = self.members.iter().zip(rules).enumerate();
        let asks = asks.map(|(place, ((_, id), rule))| {
            Asked::new(&charge(rule, *id), tag(NAME), rule, place, verb)
        });
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
