use std::time::Duration;

use super::{Conformance, Numbers, Subject, Violation};
use crate::{Algorithm, Decision, Quota, algorithm::saturating_nanos, model::Model};

/// How many requests in a sequence.
const LENGTH: u32 = 40;

/// What a request is.
struct Request {
    cost: u64,
    want: u64,
    settle: Option<i64>,
}

/// Random requests are decided as the model decides them. On a clock that stands still in between, time passes too.
pub(in super::super) async fn decisions(
    kit: &Conformance,
    algorithm: Algorithm,
) -> Result<(), Violation> {
    let mut numbers = kit.numbers("decisions");
    for sequence in 0..kit.sequences {
        let phases = matches!(
            algorithm,
            Algorithm::FixedWindow {
                phase_per_key: true
            }
        );
        let exact = kit.clock.grain().is_zero() && !phases;
        let subject = if exact {
            Subject::one(
                kit,
                "decisions",
                algorithm,
                quota(algorithm, &mut numbers),
                false,
            )?
        } else {
            Subject::frozen(kit, "decisions", algorithm)?
        };
        let (key, mut model) = (subject.key(&sequence.to_string()), subject.model());
        for _ in 0..LENGTH {
            if exact {
                let window = saturating_nanos(subject.quota.window());
                let longest = [window / subject.quota.limit(), window, 3 * window];
                let longest = longest[usize::try_from(numbers.up_to(2)).unwrap_or(0)];
                let time = Duration::from_nanos(numbers.up_to(longest));
                subject.clock.pass(time).await;
            }
            let request = Request::any(&subject, kit.leases, &mut numbers);
            compare(&subject, &key, &mut model, &request).await?;
        }
    }
    Ok(())
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
    model: &mut Model,
    request: &Request,
) -> Result<(), Violation> {
    let Request { cost, want, settle } = *request;
    let before = subject.now();
    let decision = subject.ask(subject.charge(key, cost).want(want)).await?;
    let after = subject.now();
    // A nanosecond is what counting in units may round.
    let grain = saturating_nanos(subject.clock.grain()).max(1);
    let [early, late] = [before.max(1) - 1, after + grain];
    let early = model.decide(early.max(model.seen()), cost, want);
    let late = model.decide(late, cost, want);
    let total = |granted: u64, remaining: u64| granted + remaining;
    let fits = (early.allowed..=late.allowed).contains(&decision.allowed)
        && (early.granted..=late.granted).contains(&decision.granted)
        && (total(early.granted, early.remaining)..=total(late.granted, late.remaining))
            .contains(&total(decision.granted, decision.remaining))
        && (late.delay..=early.delay + grain).contains(&saturating_nanos(decision.delay))
        && decision.limit == subject.quota.limit();
    subject.promise(fits, || {
        format!("cost {cost}, wanted {want}: {decision:?}, but {early:?} to {late:?}")
    })?;
    sound(subject, cost, &decision)?;
    model.take(before.max(model.seen()), decision.granted);
    if let Some(delta) = settle
        && decision.allowed
    {
        subject.settle(subject.charge(key, cost), delta).await?;
        model.settle(before.max(model.seen()), delta.max(-cost.cast_signed()));
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
    subject.promise(sound, || format!("cost {cost}: {decision:?}"))
}
