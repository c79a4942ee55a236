use std::time::Duration;

use redis::{RedisResult, Value};
use smallvec::SmallVec;

use crate::{Decision, backend::Verdict};

/// What a script says about one policy: granted (-1: refused), remaining, wait (-1: for ever), and the time to reset.
pub(super) const NUMBERS: usize = 4;

/// What a script says about one request.
pub(super) type Numbers = SmallVec<[i64; NUMBERS]>;

/// The numbers of all requests in a script's answer.
pub(super) fn numbers(answer: RedisResult<Value>) -> RedisResult<Vec<i64>> {
    match answer? {
        Value::Array(values) => values
            .into_iter()
            .map(|value| match value {
                Value::Int(number) => Ok(number),
                other => redis::from_redis_value(other).map_err(Into::into),
            })
            .collect(),
        other => redis::from_redis_value(other).map_err(Into::into),
    }
}

/// The decisions on one request, whose policies have these limits.
pub(super) fn verdict(numbers: &[i64], limits: &[u64]) -> Verdict {
    let decisions = numbers.chunks_exact(NUMBERS).zip(limits);
    let decisions = decisions.map(|(numbers, &limit)| decision(numbers, limit));
    Verdict {
        allowed: numbers.chunks_exact(NUMBERS).all(|numbers| numbers[0] >= 0),
        decisions: decisions.collect(),
    }
}

pub(super) fn decision(numbers: &[i64], limit: u64) -> Decision {
    let &[granted, remaining, wait, reset] = numbers else {
        return Decision::refuse(limit, 0, None, Duration::ZERO);
    };
    let micros = |value: i64| u64::try_from(value).ok().map(Duration::from_micros);
    let count = |value: i64| u64::try_from(value).unwrap_or(0);
    let reset = micros(reset).unwrap_or_default();
    if granted < 0 {
        return Decision::refuse(limit, count(remaining), micros(wait), reset);
    }
    let mut decision = Decision::allow(count(granted), limit, count(remaining), reset);
    decision.delay = micros(wait).unwrap_or_default();
    decision
}
