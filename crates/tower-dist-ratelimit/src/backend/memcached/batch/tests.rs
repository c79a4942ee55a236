use std::sync::Arc;

use tokio::{sync::oneshot, time::Instant};

use super::*;
use crate::{
    Policy, Quota,
    algorithm::saturating_nanos,
    backend::{Charge, PolicyId, memcached::job::Asked, tag::tag},
};

const NOW: Time = Time { nanos: 0, unix: 0 };

fn decide(policies: &[Policy], asked: &[&[Charge<'_>]]) -> (Arc<Set>, Batch) {
    let set = Arc::new(Set::new("rl", policies).unwrap());
    let jobs = asked.iter().map(|charges| Swapping {
        set: Arc::clone(&set),
        tag: tag(b"k"),
        verb: Verb::Acquire,
        asked: charges.iter().map(Asked::of).enumerate().collect(),
        answer: oneshot::channel().0,
        since: Instant::now(),
    });
    let states = vec![Words::new(); policies.len()];
    let batch = Batch::decide(&set, states, jobs.collect(), NOW);
    (set, batch)
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
fn an_item_is_kept_for_as_long_as_the_slowest_quota_says_that_was_asked_by() {
    let policy = Policy::new("p", Quota::per_hour(5)).dynamic_quotas();
    let slow = charge(1).quota(Quota::per_day(1));
    let fast = charge(1).quota(Quota::per_second(1_000));
    let (set, batch) = decide(&[policy], &[&[slow], &[fast]]);
    let day = Duration::from_secs(86_400);
    assert_eq!(batch.write, Some(set.ttl(day, NOW)));
}

#[test]
fn a_refund_after_the_clock_jumped_back_keeps_an_item_no_longer_than_it_drains() {
    let hour = Duration::from_secs(3600);
    let policy = Policy::new("p", Quota::per_minute(60));
    let set = Arc::new(Set::new("rl", &[policy]).unwrap());
    let ask = |verb, states, time| {
        let jobs = vec![Swapping {
            set: Arc::clone(&set),
            tag: tag(b"k"),
            verb,
            asked: [(0, Asked::of(&charge(60)))].into_iter().collect(),
            answer: oneshot::channel().0,
            since: Instant::now(),
        }];
        Batch::decide(&set, states, jobs, time)
    };
    let late = Time {
        nanos: saturating_nanos(hour),
        unix: hour.as_secs(),
    };
    let full = ask(Verb::Acquire, vec![Words::new()], late);
    let minute = Duration::from_secs(60);
    assert_eq!(full.write, Some(set.ttl(minute, late)));
    let refunded = ask(Verb::Settle(-20), full.states, NOW);
    assert_eq!(refunded.write, Some(set.ttl(minute - minute / 3, NOW)));
}
