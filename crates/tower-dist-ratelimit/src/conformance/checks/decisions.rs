use std::time::Duration;

use super::{
    Case, Checked, Quota, Rng,
    subject::{FROZEN, LIMIT, Subject},
    violation::{equal, promise, succeeds, within},
};
use crate::{
    Algorithm, Decision,
    arithmetic::{Limit, saturating_nanos},
    backend::Charge,
    conformance::state_range::StateRange,
};

/// Number of requests in a sequence.
const LENGTH: u32 = 40;

/// A window for clocks that cannot be paused. With [`LIMIT`] tokens per window, a bucket gains a token every 25 ms.
const LIVE: Duration = Duration::from_millis(500);

/// Checks that random requests are decided as the arithmetic decides them. If the clock can be paused, the check
/// advances it between the requests, except for staggered windows. If the clock cannot be paused, the beginning of
/// windows is usually unknown. The check then waits between the requests only for token buckets, leaky buckets, leaky
/// queues and logs, in every second sequence.
pub(super) async fn decisions(case: Case) -> Checked {
    let kit = &case.kit;
    let mut numbers = Rng::new(kit.seed, case.check);
    let stands_still = kit.clock.grain().is_zero();
    for sequence in 0..kit.sequences {
        let quota = match case.algorithm {
            Algorithm::FixedWindow { staggered: true } => None,
            _ if stands_still => Some(quota(case.algorithm, &mut numbers)),
            Algorithm::TokenBucket
            | Algorithm::LeakyBucket
            | Algorithm::LeakyQueue { .. }
            | Algorithm::SlidingWindowLog => (sequence % 2 == 1).then(|| Quota::new(LIMIT, LIVE)),
            _ => None,
        };
        let passes = quota.is_some();
        let quota = quota.unwrap_or(FROZEN);
        let subject = case.subject(quota)?;
        let key = subject.key(&sequence.to_string());
        let limit = Limit::new(subject.case.algorithm, quota);
        let mut between = StateRange::new(succeeds("register", limit)?.unused(0));
        for _ in 0..LENGTH {
            if passes {
                subject.pass(pause(&subject, &mut numbers)).await;
            }
            let (charge, correction) = request(&subject, &key, &mut numbers);
            compare(&subject, &mut between, charge, correction).await?;
        }
    }
    Ok(())
}

/// Returns a random pause: up to three windows with a paused clock, otherwise up to `2 * window / limit`.
fn pause(subject: &Subject, numbers: &mut Rng) -> Duration {
    let window = saturating_nanos(subject.quota.window());
    let token = window / subject.quota.limit();
    let longest = if subject.grain().is_zero() {
        [token, window, 3 * window][usize::try_from(numbers.up_to(2)).unwrap_or(0)]
    } else {
        2 * token
    };
    Duration::from_nanos(numbers.up_to(longest))
}

fn quota(algorithm: Algorithm, numbers: &mut Rng) -> Quota {
    let limit = 1 + numbers.up_to(30);
    let windows = [1_000_000_000, 60_000_000_000, 999_999_937, 7_777_777];
    let window = windows[usize::try_from(numbers.up_to(3)).unwrap_or(0)];
    let quota = Quota::new(limit, Duration::from_nanos(window));
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => quota.burst(1 + numbers.up_to(30)),
        _ => quota,
    }
}

/// Returns a random charge, and sometimes a correction of it.
fn request<'a>(subject: &Subject, key: &'a [u8], numbers: &mut Rng) -> (Charge<'a>, Option<i64>) {
    let burst = subject.quota.burst_size();
    let cost = match numbers.up_to(3) {
        0 => numbers.up_to(burst + 1),
        _ => numbers.up_to(2),
    };
    let up_to = match numbers.up_to(3) {
        0 if subject.case.kit.leases => numbers.up_to(burst + 1),
        _ => cost,
    };
    let correction =
        (numbers.up_to(4) == 0).then(|| numbers.up_to(cost + 3).cast_signed() - cost.cast_signed());
    (subject.charge(key, cost).up_to(up_to), correction)
}

async fn compare(
    subject: &Subject,
    between: &mut StateRange,
    charge: Charge<'_>,
    correction: Option<i64>,
) -> Checked {
    let (cost, up_to) = (charge.cost, charge.up_to);
    let asked = subject.now();
    let decision = subject.ask(charge).await?;
    let told = subject.now();
    // The arithmetic's units may round a time by a nanosecond.
    let grain = saturating_nanos(subject.grain()).max(1);
    let [early, late] = between.decide(asked.saturating_sub(grain), told + grain, &charge);
    let operation = format!("acquire of {cost}, up to {up_to}");
    let allowed = early.allowed..=late.allowed;
    within(&operation, "allowed", allowed, decision.allowed)?;
    let granted = match decision.allowed {
        true => early.granted.max(cost)..=late.granted,
        false => 0..=0,
    };
    within(&operation, "granted", granted, decision.granted)?;
    let left = |bound: Decision| (bound.granted + bound.remaining).saturating_sub(decision.granted);
    let remaining = left(early)..=left(late);
    within(&operation, "remaining", remaining, decision.remaining)?;
    let limit = subject.quota.limit();
    equal(&operation, "limit", limit, decision.limit)?;
    // If the strictest decision is a rejection, an allowed request may wait for up to `max_wait`.
    let longest = match subject.case.algorithm {
        Algorithm::LeakyQueue { max_wait } if !early.allowed => max_wait,
        _ => early.delay,
    };
    let delays = match decision.allowed {
        true => late.delay..=longest + Duration::from_nanos(grain),
        false => Duration::ZERO..=Duration::ZERO,
    };
    within(&operation, "delay", delays, decision.delay)?;
    retry_after(subject, &operation, cost, &decision)?;
    between.settle(asked, told, decision.granted.cast_signed());
    // If the clock cannot be paused, the beginning of windows is usually unknown. So `reset_after` is then compared
    // only for token buckets, leaky buckets and leaky queues.
    if subject.grain().is_zero() || !subject.case.algorithm.has_windows() {
        let [soonest, latest] = between.unused(asked, told);
        let from = soonest.saturating_sub(told + 2 * grain);
        let to = (latest + 2 * grain).saturating_sub(asked);
        let resets = Duration::from_nanos(from)..=Duration::from_nanos(to);
        within(operation, "reset_after", resets, decision.reset_after)?;
    }
    if let Some(delta) = correction
        && decision.allowed
    {
        let asked = subject.now();
        subject.settle(charge, delta).await?;
        between.settle(asked, subject.now(), delta.max(-cost.cast_signed()));
    }
    Ok(())
}

/// Checks the promises on `retry_after` that need no arithmetic.
fn retry_after(subject: &Subject, operation: &str, cost: u64, decision: &Decision) -> Checked {
    let never = cost > subject.quota.burst_size();
    let wait = decision.retry_after;
    let (sound, expected) = match decision.allowed {
        true => (wait == Some(Duration::ZERO), "zero"),
        false if never => (wait.is_none(), "none"),
        false => (wait > Some(Duration::ZERO), "above zero"),
    };
    promise(sound, operation, "retry_after", expected, wait)
}
