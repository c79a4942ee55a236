use super::{Algorithm, Checked, Conformance, FROZEN, LIMIT, Quota, Subjects};

/// If one policy of a set rejects a request, no policy of the set charges it.
pub(in super::super) async fn all_or_nothing(kit: &Conformance, algorithm: Algorithm) -> Checked {
    if (kit.backend)().capabilities().max_policies < 2 {
        return Ok(());
    }
    let tight_policy = (algorithm, FROZEN);
    for &other in &kit.algorithms {
        let wide_policy = (other, Quota::new(3 * LIMIT, FROZEN.window()));
        for (tight, wide) in [(0, 1), (1, 0)] {
            let mut policies = [tight_policy; 2];
            policies[wide] = wide_policy;
            let set = Subjects::new(kit, "all or nothing", &policies, false)?;
            // Other keys for each pair, because the checks of all algorithms may run concurrently over one store.
            let key = |number| format!("{algorithm:?}-{other:?}-{tight}-{number}");
            let members = set.members.iter().zip(0..);
            let keys: Vec<_> = members.map(|(one, number)| one.key(&key(number))).collect();
            exhausted(&set, &keys, tight, wide).await?;
        }
    }
    Ok(())
}

async fn exhausted(set: &Subjects, keys: &[Vec<u8>], tight: usize, wide: usize) -> Checked {
    let subject = &set.members[tight];
    let (_, full) = set.take(keys, 0).await?;
    let mut taken = 0;
    loop {
        let (allowed, decisions) = set.take(keys, 1).await?;
        let all = decisions.iter().all(|decision| decision.allowed);
        let operation = format!("acquire of a set: the decisions are {decisions:?}");
        subject.equal(operation, "the answer", all, allowed)?;
        if !allowed {
            break;
        }
        taken += 1;
        let most = full[tight].remaining;
        subject.promise(
            taken <= most,
            "acquire until rejected",
            "granted",
            most,
            taken,
        )?;
    }
    let counted = |seen: u64, full: u64| seen + taken == full;
    for _ in 0..5 {
        let (allowed, decisions) = set.take(keys, 1).await?;
        let (rejects, passes) = (&decisions[tight], &decisions[wide]);
        let right = !allowed && !rejects.allowed && passes.allowed;
        let operation = "acquire of a set that one policy rejects";
        let expected = "false for the exhausted policy alone";
        subject.promise(right, operation, "allowed", expected, &decisions)?;
        let nothing = passes.granted == 0 && counted(passes.remaining, full[wide].remaining);
        let operation = format!("acquire of a rejected set after {taken}");
        subject.promise(
            nothing,
            operation,
            "granted",
            "zero, and nothing charged",
            &decisions,
        )?;
    }
    let (_, left) = set.take(keys, 0).await?;
    let right = left[tight].remaining == 0 && counted(left[wide].remaining, full[wide].remaining);
    let expected = format!("{taken} less than {full:?}");
    subject.promise(
        right,
        "a look at an exhausted set",
        "remaining",
        expected,
        &left,
    )
}
