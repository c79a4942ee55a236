use std::sync::Arc;

use proptest::prelude::*;
use tower_dist_ratelimit::{
    Algorithm, Decision, Policy, Quota,
    arithmetic::{Limit, State, charge_all},
    backend::{Charge, PolicyId, toolkit::tag},
};

use super::{clock::Clock, lab::Lab, same::same, step::Step};
use crate::{
    call::{ChargeKind, KeyArgs, ScriptCall},
    compiled_policy::CompiledPolicy,
    key::Tag,
    reply::verdict,
    script::Script,
};

/// The time is the last argument.
const CLOCK: &str = "local now = tonumber(table.remove(ARGV))\n";

/// Keys outlive a trace at any of its times.
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

fn compiled(policy: &Policy) -> Arc<CompiledPolicy> {
    Arc::new(CompiledPolicy::new("rl", policy).unwrap())
}

fn script(policies: Vec<Arc<CompiledPolicy>>) -> Script {
    Script::with_clock(policies, CLOCK, SLACK)
}

/// Returns the sixteen bits of a key's hash that the scripts use.
fn phase_bits(tag: &Tag) -> u64 {
    let digits = std::str::from_utf8(&tag[..4]).unwrap();
    u64::from_str_radix(digits, 16).unwrap() << 48
}

/// Requests that were decided in Rust, with their limits. The script decides them in one call.
#[derive(Default)]
pub(super) struct PendingReply {
    calls: Vec<ScriptCall>,
    decisions: Vec<Option<(Vec<Decision>, Vec<u64>)>>,
}

impl PendingReply {
    pub(super) fn compare(&mut self, lab: &Lab, now: u64) -> Result<(), TestCaseError> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let replies = lab.run(now, &self.calls);
        for ((call, replies), theirs) in self.calls.iter().zip(replies).zip(&self.decisions) {
            let Some((theirs, limits)) = theirs else {
                prop_assert!(replies.is_empty());
                continue;
            };
            let ours = verdict(&replies, limits);
            prop_assert_eq!(ours.decisions.len(), theirs.len());
            for ((ours, theirs), policy) in
                ours.decisions.iter().zip(theirs).zip(&call.script.policies)
            {
                prop_assert!(
                    same(ours, theirs, policy.dynamic),
                    "at {now}: redis {ours:?}, rust {theirs:?}"
                );
            }
        }
        *self = Self::default();
        Ok(())
    }
}

/// Returns the quota with the policy's own window. Between windows of very different lengths, the conversion would be
/// mostly rounding.
fn in_window_of(quota: Quota, other: Quota) -> Quota {
    Quota::new(other.limit(), quota.window()).burst(other.burst_size())
}

/// Policies that are decided together, each with a key.
pub(super) struct Together {
    script: Arc<Script>,
    members: Vec<Member>,
}

struct Member {
    /// The state of the key, and a second state, which rejects the requests that the whole set rejects.
    states: [State; 2],
    clock: Clock,
}

impl Member {
    /// Makes a charge if the whole set allows it, or else records the rejection.
    fn charge(&mut self, time: u64, charge: Charge<'_>, allowed: bool) -> Decision {
        let nanos = time * 1000;
        let too_much = Charge::new(charge.policy, NAME, u64::MAX);
        let before = self.states[0].to_bytes();
        let decision = if allowed {
            self.states[0].charge(nanos, &charge)
        } else {
            let mut out = [Decision::default(); 2];
            charge_all(&mut self.states, nanos, &[charge, too_much], &mut out);
            out[0]
        };
        if self.states[0].to_bytes() != before {
            self.clock.wrote(time, &decision);
        }
        decision
    }
}

const NAME: &[u8] = b"someone";

impl Together {
    pub(super) fn new(policies: &[(Algorithm, bool, Quota)]) -> Self {
        let named = policies
            .iter()
            .enumerate()
            .map(|(number, &(algorithm, dynamic, quota))| {
                compiled(&policy(&format!("p{number}"), algorithm, quota, dynamic))
            });
        let members = policies.iter().map(|&(algorithm, _, quota)| {
            let bits = phase_bits(&tag(NAME));
            let limit = Limit::new(algorithm, quota).unwrap();
            Member {
                states: [limit.unused(bits), limit.unused(0)],
                clock: Clock::new(algorithm, quota, bits),
            }
        });
        Self {
            script: Arc::new(script(named.collect())),
            members: members.collect(),
        }
    }

    /// Makes one call with a request of each name. Returns whether the script allows the first request.
    pub(super) fn passes(&self, lab: &Lab, now: u64, names: &[&str]) -> bool {
        let request = |name: &&str| {
            let policies = self.script.policies.iter().enumerate();
            let charge = Charge::new(PolicyId::new(0), name.as_bytes(), 1);
            let asks = policies.map(|(place, policy)| {
                KeyArgs::new(&charge, tag(charge.key), policy, place, ChargeKind::Acquire)
            });
            ScriptCall {
                script: Arc::clone(&self.script),
                asks: asks.collect(),
                settles: false,
            }
        };
        let calls: Vec<ScriptCall> = names.iter().map(request).collect();
        let replies = &lab.run(now, &calls)[0];
        replies.iter().all(|reply| reply.granted >= 0)
    }

    /// Makes a step in Rust. The script makes it when the time moves on.
    pub(super) fn step(&mut self, now: u64, step: &Step, pending: &mut PendingReply) {
        let policies = Arc::clone(&self.script);
        let policies = &policies.policies;
        let id = PolicyId::new(0);
        let charge = |policy: &CompiledPolicy| match step.settle {
            Some(_) => Charge::new(id, NAME, u64::MAX),
            None => {
                let mut charge = Charge::new(id, NAME, step.cost).up_to(step.want);
                let other = step.quota.filter(|_| policy.dynamic);
                charge.quota = other.map(|other| in_window_of(policy.quota, other));
                charge
            }
        };
        let action = step.settle.map_or(ChargeKind::Acquire, ChargeKind::Settle);
        let asks = policies.iter().enumerate();
        let asks = asks
            .map(|(place, policy)| KeyArgs::new(&charge(policy), tag(NAME), policy, place, action));
        pending.calls.push(ScriptCall {
            script: Arc::clone(&self.script),
            asks: asks.collect(),
            settles: step.settle.is_some(),
        });
        if let Some(delta) = step.settle {
            for (member, policy) in self.members.iter_mut().zip(policies) {
                member.states[0].settle(now * 1000, &charge(policy), delta);
            }
            pending.decisions.push(None);
            return;
        }
        let charges: Vec<Charge<'_>> = policies.iter().map(|policy| charge(policy)).collect();
        let members = self.members.iter_mut();
        let times: Vec<u64> = members.map(|member| member.clock.at(now)).collect();
        let members = self.members.iter().zip(&times).zip(&charges);
        let decided =
            members.map(|((member, &time), charge)| member.states[0].decide(time * 1000, charge));
        let allowed = decided.fold(true, |all, decision| all & decision.allowed);
        let members = self.members.iter_mut().zip(times).zip(&charges);
        let decisions = members
            .map(|((member, time), &charge)| member.charge(time, charge, allowed))
            .collect();
        let limits = policies
            .iter()
            .zip(&charges)
            .map(|(policy, charge)| policy.limit(charge.quota));
        pending.decisions.push(Some((decisions, limits.collect())));
    }
}
