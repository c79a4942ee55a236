//! Cost of the decision. Limits admit every request, except in the case "layer, refusal".

mod decision;
mod flood;
mod floor;
mod http_floor;
mod inner;
mod layer;
mod peers;
mod together;

use governor::Quota as GovernorQuota;
use tower_dist_ratelimit::Quota;

#[cfg(test)]
pub(crate) use self::decision::{HOT, MANY, RESIDENT};
pub(crate) use self::decision::{Many, check, limiter, name};
#[cfg(test)]
pub(crate) use self::flood::FLOOD;
pub(crate) use self::floor::Floor;
pub(crate) use self::http_floor::{PROBLEM, RATELIMIT, RATELIMIT_POLICY, http_floor};
#[cfg(test)]
pub(crate) use self::layer::{BUCKET, FIXED, WITHOUT_FIELDS};
pub(crate) use self::layer::{PROCESSOR_CLOCK, by_header, with_processor_clock, without_fields_in};
pub(crate) use self::peers::{tower_governor, tower_governor_refusing, tower_governor_with_fields};
use crate::measure::Case;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = decision::cases();
    cases.push(flood::case());
    cases.extend(layer::cases());
    cases
}

/// More than any subject can use, so that no request is rejected.
const PER_SECOND: u32 = 1_000_000_000;

pub(crate) fn plenty() -> Quota {
    Quota::per_second(PER_SECOND.into())
}

/// The capacity of `Memory`, by default.
pub(crate) const KEYS: u32 = 100_000;

/// The quota of the peers, in governor's type.
pub(crate) fn governors_plenty() -> GovernorQuota {
    GovernorQuota::per_second(PER_SECOND.try_into().expect("above zero"))
}
