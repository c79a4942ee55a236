//! Keys that occur once, as in an attack to exhaust memory or to evict other clients' counts.

use std::fmt::Write;
use std::time::Duration;

use governor::{DefaultKeyedRateLimiter, Quota as GovernorQuota};
use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};

use super::decision::{GOVERNOR, decide};
use crate::measure::{Case, Figure, Subject, time_of};
use crate::report::OURS;

pub(crate) const FLOOD: &str = "flood of 10 M String keys, once each";

/// The number of clients that exhausted their limit before the flood.
const LIMITED: u32 = 1000;

/// The limit of each client per hour, so that none refills during the flood.
const PER_HOUR: u32 = 10;

pub(super) fn case() -> Case {
    Case::new(FLOOD, Figure::Flood, vec![ours(), governor()])
}

fn ours() -> Subject {
    let mut kept = None;
    Subject::timing(OURS, move |keys| {
        let policy = Policy::new("per-client", Quota::per_hour(PER_HOUR.into()));
        let limiter = Limiter::new(Memory::default(), policy).expect("valid");
        flood(kept.insert(limiter), keys, |limiter, key| {
            decide(limiter, key)
        })
    })
}

fn governor() -> Subject {
    let mut kept = None;
    Subject::timing(GOVERNOR, move |keys| {
        let quota = GovernorQuota::per_hour(PER_HOUR.try_into().expect("above zero"));
        let limiter = DefaultKeyedRateLimiter::keyed(quota);
        flood(kept.insert(limiter), keys, |limiter, key| {
            limiter.check_key(key).is_ok()
        })
    })
}

/// The duration of decisions on this number of new keys, including the formatting of each key.
///
/// # Panics
///
/// Panics if a new key is rejected, or if an exhausted client is admitted again.
fn flood<L>(limiter: &L, keys: u32, allowed: impl Fn(&L, &String) -> bool) -> Duration {
    let limited: Vec<String> = (0..LIMITED)
        .map(|client| format!("client-{client:08}"))
        .collect();
    for client in &limited {
        (0..PER_HOUR).for_each(|_| assert!(allowed(limiter, client), "refused"));
    }
    let mut name = String::new();
    let took = time_of(|| {
        for key in 0..keys {
            name.clear();
            write!(name, "flood-{key:08}").expect("strings grow");
            assert!(allowed(limiter, &name), "refused");
        }
    });
    let forgotten = limited.iter().filter(|client| allowed(limiter, client));
    assert_eq!(forgotten.count(), 0, "clients are not limited any more");
    took
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_new_clients_frees_no_limited_client() {
        // Twice as many keys as the table has room for.
        for mut subject in [ours(), governor()] {
            subject.run(200_000);
        }
    }
}
