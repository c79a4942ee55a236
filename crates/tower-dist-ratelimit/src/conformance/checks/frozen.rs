//! Checks under a quota with such a long window that tokens hardly ever become free again during a check.

use std::{collections::BTreeSet, time::Duration};

use tokio::task::JoinSet;

use super::{
    Case, Checked, Quota, Violation,
    subject::{FROZEN, LIMIT, Subject},
    violation::{allows, equal, is_unused, promise, remains, within},
};
use crate::{Decision, backend::JointDecision};

/// Checks that rejections and charges of zero cost write nothing: the remaining tokens stay, and an unused key stays
/// unused.
pub(super) async fn nothing_written(case: Case) -> Checked {
    let subject = case.subject(FROZEN)?;
    let (key, fresh) = (subject.key("used"), subject.key("fresh"));
    let unused = subject.look(&fresh).await?;
    subject.exhaust(&key).await?;
    let before = subject.look(&key).await?;
    for _ in 0..20 {
        for cost in [1, 2, LIMIT + 1, u64::MAX, 0] {
            let seen = subject.take(&key, cost).await?;
            let operation = format!("acquire of {cost} from an exhausted key");
            allows(operation, cost == 0, seen)?;
        }
        for cost in [0, LIMIT + 1, u64::MAX] {
            subject.take(&fresh, cost).await?;
        }
    }
    let after = subject.look(&key).await?;
    let operation = "a look after rejections";
    allows(operation, before.allowed, after)?;
    equal(operation, "granted", before.granted, after.granted)?;
    remains(operation, before.remaining, after)?;
    equal(operation, "limit", before.limit, after.limit)?;
    let [old, new] = [before, after].map(|decision| decision.retry_after);
    equal(operation, "retry_after", old, new)?;
    equal(operation, "source", before.source, after.source)?;
    // If time has passed, `reset_after` and `delay` may be shorter, but not longer.
    let paused = subject.grain().is_zero();
    let since = |old| (if paused { old } else { Duration::ZERO })..=old;
    let (resets, delays) = (since(before.reset_after), since(before.delay));
    within(operation, "reset_after", resets, after.reset_after)?;
    within(operation, "delay", delays, after.delay)?;
    let seen = subject.look(&fresh).await?;
    is_unused("a look at a key of rejections alone", unused, seen)
}

/// Checks that refunds return the charged tokens and no more, and that extra charges take tokens even if too few are
/// free.
pub(super) async fn refunds(case: Case) -> Checked {
    let subject = case.subject(FROZEN)?;
    let key = subject.key("a");
    let full = subject.unused(&key).await?;
    let left = |what: &'static str, seen: Decision, expected: u64| {
        remains(format_args!("{what} of {full}"), expected, seen)
    };
    let taken = subject.take(&key, 5).await?;
    left("5 taken", taken, full - 5)?;
    subject.settle(subject.charge(&key, 5), -2).await?;
    left("2 refunded", subject.look(&key).await?, full - 3)?;
    // A refund gives back at most the cost of the charge.
    subject.settle(subject.charge(&key, 1), -100).await?;
    left("1 refunded", subject.look(&key).await?, full - 2)?;
    let all = subject.charge(&key, LIMIT);
    subject.settle(all, i64::MIN).await?;
    left("all refunded", subject.look(&key).await?, full)?;
    subject.take(&key, 4).await?;
    subject.settle(subject.charge(&key, 4), 3).await?;
    left("3 more taken", subject.look(&key).await?, full - 7)?;
    let debt = LIMIT.cast_signed();
    subject.settle(subject.charge(&key, 4), debt).await?;
    left("more taken than there was", subject.look(&key).await?, 0)?;
    let rejected = subject.take(&key, 1).await?;
    allows("acquire of a key in debt", false, rejected)?;
    subject.settle(all, -debt).await?;
    left("the debt refunded", subject.look(&key).await?, full - 7)?;
    let other = subject.look(&subject.key("b")).await?;
    left("another key", other, full)
}

/// Checks that a reset forgets one key and no other.
pub(super) async fn reset(case: Case) -> Checked {
    let subject = case.subject(FROZEN)?;
    let (key, other) = (subject.key("a"), subject.key("b"));
    let unused = subject.look(&key).await?;
    subject.exhaust(&key).await?;
    subject.exhaust(&other).await?;
    subject.reset(&key).await?;
    let seen = subject.look(&key).await?;
    is_unused("a look after a reset", unused, seen)?;
    let other = subject.take(&other, 1).await?;
    allows("acquire after another key's reset", false, other)?;
    // A key without a state can be reset, too.
    subject.reset(&subject.key("c")).await
}

/// The length of the longest keys, in bytes.
const LONG: usize = 64 << 10;

/// Checks that unusual keys are accepted, and that no two of them share a state.
pub(super) async fn keys(case: Case) -> Checked {
    let subject = case.subject(FROZEN)?;
    let keys = hostile();
    // An earlier run with the same seed may have left states of these keys.
    for key in &keys {
        subject.reset(key).await?;
    }
    let full = subject.unused(&keys[0]).await?;
    for turn in 1..=2 {
        for key in &keys {
            let seen = subject.take(key, 1).await?;
            let start = String::from_utf8_lossy(&key[..key.len().min(16)]);
            let operation = format!("acquire {turn} of {start:?}, {} bytes", key.len());
            allows(&operation, true, seen)?;
            remains(operation, full - turn, seen)?;
        }
    }
    Ok(())
}

fn hostile() -> Vec<Vec<u8>> {
    let texts = [
        "", " ", "\0", "\0\0", "a", "A", "a\0", "a\0b", "ab", "a b", "a:b", "a::b", ":", "{", "}",
        "{}", "{a}", "{a}b", "a{b}", "}{", "{{a}}", "\r\n", "*", "?", "[a]", "\\", "\"", "'", "%s",
        "../a", "é", "e\u{301}", "日本", "0", "-1",
    ];
    let longer = ["a\r\nflush_all\r\n", "\u{feff}a", "\u{202e}a"];
    let texts = texts.iter().chain(&longer);
    let mut keys: Vec<Vec<u8>> = texts.map(|text| text.as_bytes().to_vec()).collect();
    keys.extend([vec![0xfe], vec![0xff], vec![0xff, 0xfe], vec![0x80; 300]]);
    keys.extend([250, 251, LONG].map(|len| vec![b'x'; len]));
    let mut other = vec![b'x'; LONG];
    other[LONG - 1] = b'y';
    keys.push(other);
    debug_assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    keys
}

/// Number of concurrent tasks.
const TASKS: u64 = 16;

/// Checks that concurrent tasks together get exactly the free tokens of a key.
pub(super) async fn racing(case: Case) -> Checked {
    let subject = case.subject(FROZEN)?;
    for round in 0..8 {
        let key = subject.key(&round.to_string());
        let full = subject.look(&key).await?.remaining;
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (subject, key) = (subject.clone(), key.clone());
            tasks.spawn(async move {
                let mut granted = 0;
                for _ in 0..2 * LIMIT / TASKS + 2 {
                    granted += subject.take(&key, 1).await?.granted;
                }
                Ok::<u64, Violation>(granted)
            });
        }
        let granted = tasks.join_all().await.into_iter();
        let granted = granted.sum::<Result<u64, Violation>>()?;
        let operation = format!("acquire by {TASKS} tasks");
        equal(operation, "granted", full, granted)?;
        let seen = subject.look(&key).await?;
        remains("a look after all tokens were taken", 0, seen)?;
    }
    Ok(())
}

/// Checks that a limit below the used tokens rejects, that a raised limit admits immediately, and that used tokens stay
/// used.
pub(super) async fn dynamic_quotas(case: Case) -> Checked {
    if !case.kit.dynamic_quotas {
        return Ok(());
    }
    let subject = &case.subjects(&[(case.algorithm, FROZEN)], true)?[0];
    let key = subject.key("a");
    let of = |limit| Quota::new(limit, FROZEN.window());
    let by = |limit, cost| subject.charge(&key, cost).quota(of(limit));
    let used = subject.exhaust(&key).await?;
    let zero = subject.ask(by(0, 1)).await?;
    let operation = "acquire by a limit of 0";
    allows(operation, false, zero)?;
    equal(operation, "retry_after", None, zero.retry_after)?;
    let low = subject.ask(by(LIMIT / 2, 1)).await?;
    let operation = format!("acquire by a limit below the {used} that are used");
    allows(&operation, false, low)?;
    remains(&operation, 0, low)?;
    equal(&operation, "limit", LIMIT / 2, low.limit)?;
    let waits = low.retry_after.is_some();
    promise(waits, operation, "retry_after", "a time", low)?;
    let high = subject.ask(by(2 * LIMIT, 1)).await?;
    let operation = format!("acquire by a limit above the {used} that are used");
    allows(&operation, true, high)?;
    equal(operation, "limit", 2 * LIMIT, high.limit)?;
    let operation = "acquire by a raised limit: used tokens stay used";
    within(operation, "remaining", 0..=LIMIT, high.remaining)?;
    let back = subject.take(&key, 1).await?;
    let operation = "acquire by the policy's own quota again";
    allows(operation, false, back)?;
    equal(operation, "limit", LIMIT, back.limit)
}

/// Checks that if one policy of a set rejects a request, no policy of the set charges it.
pub(super) async fn all_or_nothing(case: Case) -> Checked {
    if (case.kit.backend)().max_policies() < 2 {
        return Ok(());
    }
    for &other in &case.kit.algorithms {
        let wide_policy = (other, Quota::new(3 * LIMIT, FROZEN.window()));
        // A backend can keep the states of one key in one value, and the states of two keys in two values. So the
        // policies are charged with one key and with two.
        for (tight, wide, second) in [(0, 1, 1), (1, 0, 1), (0, 1, 0), (1, 0, 0)] {
            let mut policies = [(case.algorithm, FROZEN); 2];
            policies[wide] = wide_policy;
            let set = case.subjects(&policies, false)?;
            // Each combination has its own keys, because several combinations can use the same policy in one store.
            let pair = format!("{:?}-{other:?}-{tight}-{second}", case.algorithm);
            let keys = [0, second].map(|number| set[number].key(&format!("{pair}-{number}")));
            exhausted(&set, &keys, tight, wide).await?;
        }
    }
    Ok(())
}

async fn exhausted(set: &[Subject], keys: &[Vec<u8>], tight: usize, wide: usize) -> Checked {
    let take = async |cost| {
        let charges = [0, 1].map(|number| set[number].charge(&keys[number], cost));
        set[0].ask_all(&charges).await
    };
    let full = take(0).await?.decisions;
    let (most, mut taken) = (full[tight].remaining.min(full[wide].remaining), 0);
    loop {
        let JointDecision { allowed, decisions } = take(1).await?;
        let all = decisions.iter().all(|decision| decision.allowed);
        let operation = format!("acquire of a set: the decisions are {decisions:?}");
        equal(operation, "the answer", all, allowed)?;
        if !allowed {
            break;
        }
        taken += 1;
        within("acquire until rejected", "granted", 0..=most, taken)?;
    }
    let rest = full[wide].remaining - taken;
    for _ in 0..5 {
        let JointDecision { allowed, decisions } = take(1).await?;
        let (rejects, passes) = (&decisions[tight], &decisions[wide]);
        let right = !allowed && !rejects.allowed && passes.allowed;
        let operation = "acquire of a set that one policy rejects";
        let expected = "false for the exhausted policy alone";
        promise(right, operation, "allowed", expected, &decisions)?;
        let operation = format!("acquire of a rejected set after {taken}");
        equal(&operation, "granted", 0, passes.granted)?;
        remains(&operation, rest, *passes)?;
    }
    let left = take(0).await?.decisions;
    remains("a look at an exhausted policy", 0, left[tight])?;
    remains("a look at the other policy", rest, left[wide])
}
