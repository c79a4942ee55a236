//! The memory of the deny cache and of leases, as the docs of `tower-dist-ratelimit` state it.

use tower_dist_ratelimit::{Consistency, FailureMode, Limiter, Policy, Quota};

use crate::{bytes, rate_limit::Broken};

fn limiter(deny_cache: bool, sharing: Consistency) -> usize {
    bytes_of(
        Policy::new("p", Quota::per_second(100)),
        deny_cache,
        sharing,
    )
}

fn bytes_of(policy: Policy, deny_cache: bool, sharing: Consistency) -> usize {
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
    let dynamic = || Policy::new("p", Quota::per_second(100)).dynamic_quotas();
    let bare = bytes_of(dynamic(), false, Consistency::Exact);
    let dynamic = bytes_of(dynamic(), true, Consistency::Exact) - bare;
    assert!((125_000..=135_000).contains(&dynamic), "{dynamic}");
    assert!((225_000..=235_000).contains(&leases), "{leases}");
}
