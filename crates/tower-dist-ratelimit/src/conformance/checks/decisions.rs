use std::time::Duration;

use super::{Conformance, Numbers, Subject, Violation, found};
use crate::{
    Algorithm, Decision, Quota,
    algorithm::saturating_nanos,
    conformance::{between::Between, subject::LIMIT},
};

/// How many requests in a sequence.
const LENGTH: u32 = 40;

/// What a request is.
struct Request {
    cost: u64,
    want: u64,
    settle: Option<i64>,
}

/// A window in which a token comes back every 25 ms, to be waited for by a clock that cannot be told to pass.
const LIVE: Duration = Duration::from_millis(500);

/// Random requests are decided as the model decides them, also while time passes. On a clock that goes on by itself that
/// goes for algorithms to which one moment is like another: of the others nobody knows where their windows begin.
pub(in super::super) async fn decisions(
    kit: &Conformance,
    algorithm: Algorithm,
) -> Result<(), Violation> {
    let mut numbers = kit.numbers("decisions");
    let stands_still = kit.clock.grain().is_zero();
    for sequence in 0..kit.sequences {
        let quota = match algorithm {
            Algorithm::FixedWindow { staggered: true } => None,
            _ if stands_still => Some(quota(algorithm, &mut numbers)),
            Algorithm::TokenBucket
            | Algorithm::LeakyBucket
            | Algorithm::LeakyQueue { .. }
            | Algorithm::SlidingWindowLog => (sequence % 2 == 1).then(|| Quota::new(LIMIT, LIVE)),
            _ => None,
        };
        let subject = match quota {
            Some(quota) => Subject::one(kit, "decisions", algorithm, quota, false)?,
            None => Subject::frozen(kit, "decisions", algorithm)?,
        };
        let key = subject.key(&sequence.to_string());
        let mut between = Between::new(subject.model());
        for _ in 0..LENGTH {
            if quota.is_some() {
                let time = pause(&subject, stands_still, &mut numbers);
                subject.clock.pass(time).await;
            }
            let request = Request::any(&subject, kit.leases, &mut numbers);
            compare(&subject, &key, &mut between, &request).await?;
        }
    }
    Ok(())
}

/// Up to a token's time, or where nobody has to wait for it, up to three windows.
fn pause(subject: &Subject, stands_still: bool, numbers: &mut Numbers) -> Duration {
    let window = saturating_nanos(subject.quota.window());
    let token = window / subject.quota.limit();
    let longest = if stands_still {
        [token, window, 3 * window][usize::try_from(numbers.up_to(2)).unwrap_or(0)]
    } else {
        2 * token
    };
    Duration::from_nanos(numbers.up_to(longest))
}

fn quota(algorithm: Algorithm, numbers: &mut Numbers) -> Quota {
    let limit = 1 + numbers.up_to(30);
    let windows = [1_000_000_000, 60_000_000_000, 999_999_937, 7_777_777];
    let window = windows[usize::try_from(numbers.up_to(3)).unwrap_or(0)];
    let quota = Quota::new(limit, Duration::from_nanos(window));
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => quota.burst(1 + numbers.up_to(30)),
        _ => quota,
    }
}

impl Request {
    fn any(subject: &Subject, leases: bool, numbers: &mut Numbers) -> Self {
        let burst = subject.quota.burst_size();
        let cost = match numbers.up_to(3) {
            0 => numbers.up_to(burst + 1),
            _ => numbers.up_to(2),
        };
        let want = match numbers.up_to(3) {
            0 if leases => numbers.up_to(burst + 1),
            _ => cost,
        };
        let settle = (numbers.up_to(4) == 0)
            .then(|| numbers.up_to(cost + 3).cast_signed() - cost.cast_signed());
        Self { cost, want, settle }
    }
}

async fn compare(
    subject: &Subject,
    key: &[u8],
    between: &mut Between,
    request: &Request,
) -> Result<(), Violation> {
    let Request { cost, want, settle } = *request;
    let asked = subject.now();
    let decision = subject.ask(subject.charge(key, cost).up_to(want)).await?;
    let told = subject.now();
    // A nanosecond is what counting in units may round.
    let grain = saturating_nanos(subject.clock.grain()).max(1);
    let [early, late] = between.decide(asked.saturating_sub(grain), told + grain, cost, want);
    let total = |granted: u64, remaining: u64| granted + remaining;
    // Who could have been rejected may wait as long as anybody.
    let longest = match subject.algorithm {
        Algorithm::LeakyQueue { max_wait } if !early.allowed => saturating_nanos(max_wait),
        _ => early.delay,
    };
    let delays = match decision.allowed {
        true => late.delay..=longest + grain,
        false => 0..=0,
    };
    let fits = (early.allowed..=late.allowed).contains(&decision.allowed)
        && (early.granted..=late.granted).contains(&decision.granted)
        && (total(early.granted, early.remaining)..=total(late.granted, late.remaining))
            .contains(&total(decision.granted, decision.remaining))
        && delays.contains(&saturating_nanos(decision.delay))
        && decision.limit == subject.quota.limit();
    subject.promise(fits, || {
        let operation = format!("acquire of {cost}, up to {want}");
        let expected = format!("{early:?} to {late:?} of {}", subject.quota.limit());
        found(operation, "the decision", expected, decision)
    })?;
    sound(subject, cost, &decision)?;
    between.take(asked, told, decision.granted);
    // By a clock that goes on, when windows begin is not known.
    if subject.clock.grain().is_zero() || !subject.algorithm.has_windows() {
        let [soonest, latest] = between.unused(asked, told);
        let from = soonest.saturating_sub(told + 2 * grain);
        let to = (latest + 2 * grain).saturating_sub(asked);
        let reset = saturating_nanos(decision.reset_after);
        subject.promise((from..=to).contains(&reset), || {
            let [from, to] = [from, to].map(Duration::from_nanos);
            let operation = format!("acquire of {cost}, up to {want}");
            found(
                operation,
                "reset_after",
                format!("{from:?} to {to:?}"),
                decision,
            )
        })?;
    }
    if let Some(delta) = settle
        && decision.allowed
    {
        let asked = subject.now();
        subject.settle(subject.charge(key, cost), delta).await?;
        between.settle(asked, subject.now(), delta.max(-cost.cast_signed()));
    }
    Ok(())
}

/// What holds of a decision by itself.
fn sound(subject: &Subject, cost: u64, decision: &Decision) -> Result<(), Violation> {
    let never = cost > subject.quota.burst_size();
    let sound = if decision.allowed {
        decision.granted >= cost && decision.retry_after == Some(Duration::ZERO)
    } else {
        decision.granted == 0
            && decision.retry_after != Some(Duration::ZERO)
            && decision.retry_after.is_none() == never
    };
    subject.promise(sound, || {
        let expected = if never {
            "none"
        } else {
            "above zero, and zero if allowed"
        };
        found(
            format!("acquire of {cost}"),
            "retry_after",
            expected,
            decision,
        )
    })
}
