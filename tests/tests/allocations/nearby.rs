//! The memory of the deny cache and of leases, as the docs of `tower-dist-ratelimit` state it.

use tower_dist_ratelimit::{Consistency, FailureMode, Limiter, Policy, Quota};

use crate::{bytes, rate_limit::Broken};

fn limiter(deny_cache: bool, sharing: Consistency) -> usize {
    let policy = Policy::new("p", Quota::per_second(100));
    let limiter = Limiter::builder(Broken, policy).failure_mode(FailureMode::Closed);
    let limiter = limiter.deny_cache(deny_cache).consistency(sharing);
    let (bytes, limiter) = bytes(|| limiter.build().unwrap());
    drop(limiter);
    bytes
}

#[test]
fn a_deny_cache_and_leases_take_the_bytes_of_the_docs() {
    let bare = limiter(false, Consistency::Exact);
    let deny_cache = limiter(true, Consistency::Exact) - bare;
    let leases = limiter(false, Consistency::leased()) - bare;
    assert!((95_000..=105_000).contains(&deny_cache), "{deny_cache}");
    assert!((225_000..=235_000).contains(&leases), "{leases}");
}
