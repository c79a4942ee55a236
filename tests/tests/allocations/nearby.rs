//! The memory of the deny cache and of leases, as the docs of `tower-dist-ratelimit` state it.

use tower_dist_ratelimit::{Limiter, OnError, Policy, Quota, Sharing};

use crate::{bytes, rate_limit::Broken};

fn limiter(deny_cache: bool, sharing: Sharing) -> usize {
    let policy = Policy::new("p", Quota::per_second(100));
    let limiter = Limiter::builder(Broken, policy).on_backend_error(OnError::Deny);
    let limiter = limiter.deny_cache(deny_cache).sharing(sharing);
    let (bytes, limiter) = bytes(|| limiter.build().unwrap());
    drop(limiter);
    bytes
}

#[test]
fn what_stands_in_front_of_a_store_takes_the_bytes_that_the_docs_say() {
    let bare = limiter(false, Sharing::Exact);
    let deny_cache = limiter(true, Sharing::Exact) - bare;
    let leases = limiter(false, Sharing::leases()) - bare;
    assert!((125_000..=135_000).contains(&deny_cache), "{deny_cache}");
    assert!((235_000..=245_000).contains(&leases), "{leases}");
}
