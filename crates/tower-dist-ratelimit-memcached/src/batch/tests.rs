use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use tokio::{sync::oneshot, time::Instant};
use tower_dist_ratelimit::{
    Algorithm, Policy, Quota,
    algorithm::saturating_nanos,
    arithmetic::Limit,
    backend::{Charge, PolicyId, toolkit::tag},
};

use super::*;
use crate::{clock::SLACK, job::Asked};

const NOW: Time = Time { nanos: 0, unix: 0 };

fn decide(policies: &[Policy], asked: &[&[Charge<'_>]]) -> (Arc<Set>, Batch) {
    let set = Arc::new(Set::new("rl", policies).unwrap());
    let jobs = asked.iter().map(|charges| {
        let charges: Vec<_> = charges.iter().copied().enumerate().collect();
        job(&set, &charges)
    });
    let states = vec![Words::new(); policies.len()];
    let batch = Batch::decide(&set, states, jobs.collect(), NOW);
    (set, batch)
}

/// A question about these places of the set.
fn job(set: &Arc<Set>, charges: &[(usize, Charge<'_>)]) -> Swapping {
    let asked = charges
        .iter()
        .map(|(place, charge)| (*place, Asked::of(charge)));
    Swapping {
        set: Arc::clone(set),
        tag: tag(b"k"),
        verb: Verb::Acquire,
        asked: asked.collect(),
        answer: oneshot::channel().0,
        since: Instant::now(),
    }
}

fn charge(cost: u64) -> Charge<'static> {
    Charge::new(PolicyId::new(0), b"k", cost)
}

#[test]
fn who_is_refused_by_one_policy_is_told_what_is_left_of_the_others() {
    let policies = [5, 1].map(|limit| Policy::new(limit.to_string(), Quota::per_hour(limit)));
    let (_, batch) = decide(&policies, &[&[charge(1), charge(2)]]);
    let verdict = &batch.jobs[0].1;
    let left: Vec<u64> = verdict.decisions.iter().map(|one| one.remaining).collect();
    assert_eq!((verdict.allowed, left), (false, vec![5, 1]));
    assert!(batch.write.is_none());
}

#[test]
fn an_item_is_kept_for_as_long_as_the_slowest_of_its_policies_is_used() {
    let policies = || ["a", "b"].map(|name| Policy::new(name, Quota::per_hour(5)).dynamic_quotas());
    let kept = |quotas: [Quota; 2]| {
        let charges = quotas.map(|quota| charge(1).quota(quota));
        let (_, batch) = decide(&policies(), &[&charges]);
        batch.write.unwrap()
    };
    let (slow, fast) = (Quota::per_day(1), Quota::per_second(1_000));
    let day = Ttl::seconds(86_400 + 1 + SLACK, 0);
    assert_eq!((kept([slow, fast]), kept([fast, slow])), (day, day));
    // One that nobody asks about now is still used by its own quota.
    let set = Arc::new(Set::new("rl", &policies()).unwrap());
    let mut states = vec![Words::new(); 2];
    let ask = |place: usize, quota: Quota, states: &mut Vec<Words>| {
        let job = job(&set, &[(place, charge(1).quota(quota))]);
        let batch = Batch::decide(&set, std::mem::take(states), vec![job], NOW);
        *states = batch.states;
        batch.write.unwrap()
    };
    assert_eq!(ask(0, slow, &mut states), day);
    assert_eq!(ask(1, fast, &mut states), day);
}

proptest! {
    /// What is kept as words decides as what is kept in memory.
    #[test]
    fn quotas_that_change_count_as_they_do_in_memory(
        steps in prop::collection::vec(
            (0_u64..100_000, 0_u64..4, prop::option::of((0_u64..50, 1_u64..2_000_000_000_000, 0_u64..30)), prop::option::weighted(0.1, -3_i64..3)),
            1..40,
        ),
    ) {
        let quota = Quota::per_minute(10);
        let set = Arc::new(Set::new("rl", &[Policy::new("p", quota).dynamic_quotas()]).unwrap());
        let mut key = Limit::new(Algorithm::TokenBucket, quota).unwrap().unused(0);
        let (mut states, mut time) = (vec![Words::new()], NOW);
        for (millis, cost, other, settle) in steps {
            time.nanos += millis * 1_000_000;
            let other = other.map(|(limit, window, burst)| Quota::new(limit, Duration::from_nanos(window)).burst(burst));
            let mut asked = charge(cost);
            asked.quota = other;
            let mut job = job(&set, &[(0, asked)]);
            let expected = match settle {
                Some(delta) => {
                    job.verb = Verb::Settle(delta.max(-1));
                    job.asked[0].1.cost = 1;
                    key.settle(time.nanos, &asked, delta.max(-1));
                    None
                }
                None => Some(key.charge(time.nanos, &asked)),
            };
            let batch = Batch::decide(&set, states, vec![job], time);
            prop_assert_eq!(batch.jobs[0].1.decisions.first().copied(), expected);
            states = batch.states;
        }
    }
}

#[test]
fn a_refund_after_the_clock_jumped_back_keeps_an_item_no_longer_than_it_drains() {
    let hour = Duration::from_secs(3600);
    let policy = Policy::new("p", Quota::per_minute(60));
    let set = Arc::new(Set::new("rl", &[policy]).unwrap());
    let ask = |verb, states, time| {
        let mut job = job(&set, &[(0, charge(60))]);
        job.verb = verb;
        Batch::decide(&set, states, vec![job], time)
    };
    let kept = |seconds: u64, time: Time| Some(Ttl::seconds(seconds + 1 + SLACK, time.unix));
    let late = Time {
        nanos: saturating_nanos(hour),
        unix: hour.as_secs(),
    };
    let full = ask(Verb::Acquire, vec![Words::new()], late);
    assert_eq!(full.write, kept(60, late));
    let refunded = ask(Verb::Settle(-20), full.states, NOW);
    assert_eq!(refunded.write, kept(40, NOW));
}
