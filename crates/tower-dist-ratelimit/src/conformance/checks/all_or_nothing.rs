use super::{Conformance, Violation, found};
use crate::{
    Algorithm, Quota,
    conformance::subject::{LIMIT, Set},
};

/// What one policy of a set rejects is charged to none, whichever it is.
pub(in super::super) async fn all_or_nothing(
    kit: &Conformance,
    algorithm: Algorithm,
) -> Result<(), Violation> {
    if (kit.backend)().capabilities().max_policies < 2 {
        return Ok(());
    }
    let window = std::time::Duration::from_secs(30 * 86_400);
    for other in &kit.algorithms {
        for tight_first in [true, false] {
            let mut policies = vec![
                (algorithm, Quota::new(LIMIT, window)),
                (*other, Quota::new(3 * LIMIT, window)),
            ];
            if !tight_first {
                policies.reverse();
            }
            let set = Set::new(kit, "all or nothing", &policies, false)?;
            let keys = keys(&set, algorithm, *other, tight_first);
            let (tight, wide) = if tight_first { (0, 1) } else { (1, 0) };
            exhausted(&set, &keys, tight, wide).await?;
        }
    }
    Ok(())
}

/// Of each pair of algorithms its own, also in one store that the checks of all algorithms use at the same time.
fn keys(set: &Set, one: Algorithm, other: Algorithm, tight_first: bool) -> Vec<Vec<u8>> {
    let named = |number| format!("{one:?}-{other:?}-{tight_first}-{number}");
    let members = set.members.iter().enumerate();
    members
        .map(|(number, member)| member.key(&named(number)))
        .collect()
}

async fn exhausted(
    set: &Set,
    keys: &[Vec<u8>],
    tight: usize,
    wide: usize,
) -> Result<(), Violation> {
    let subject = &set.members[tight];
    let (_, full) = set.take(keys, 0).await?;
    let mut taken = 0;
    loop {
        let (allowed, decisions) = set.take(keys, 1).await?;
        let all = decisions.iter().all(|decision| decision.allowed);
        subject.promise(allowed == all, || {
            let operation = format!("acquire of a set: the decisions are {decisions:?}");
            found(operation, "the answer", all, allowed)
        })?;
        if !allowed {
            break;
        }
        taken += 1;
        subject.promise(taken <= full[tight].remaining, || {
            found(
                "acquire until rejected",
                "granted",
                full[tight].remaining,
                taken,
            )
        })?;
    }
    let counted = |seen: u64, full: u64| seen + taken == full;
    for _ in 0..5 {
        let (allowed, decisions) = set.take(keys, 1).await?;
        let (rejects, passes) = (&decisions[tight], &decisions[wide]);
        let right = !allowed && !rejects.allowed && passes.allowed;
        subject.promise(right, || {
            let expected = "false for the exhausted policy alone";
            found(
                "acquire of a set that one policy rejects",
                "allowed",
                expected,
                &decisions,
            )
        })?;
        let nothing = passes.granted == 0 && counted(passes.remaining, full[wide].remaining);
        subject.promise(nothing, || {
            let operation = format!("acquire of a rejected set after {taken}");
            found(
                operation,
                "granted",
                "zero, and nothing charged",
                &decisions,
            )
        })?;
    }
    let (_, left) = set.take(keys, 0).await?;
    let right = left[tight].remaining == 0 && counted(left[wide].remaining, full[wide].remaining);
    subject.promise(right, || {
        let expected = format!("{taken} less than {full:?}");
        found("a look at an exhausted set", "remaining", expected, &left)
    })
}
