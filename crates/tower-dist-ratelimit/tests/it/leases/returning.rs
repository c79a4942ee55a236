//! Unused leased tokens of an instance that shuts down.

use super::*;
use crate::support::{Mood, Scripted};

#[tokio::test(start_paused = true)]
async fn unused_leased_tokens_return_and_other_instances_can_take_them() {
    let wan = Wan::away(AWAY);
    let day = || Policy::new("day", Quota::per_day(1_000));
    let limiter = leasing(&wan, day()).build().unwrap();
    warm_up(&limiter, 60).await;
    let other = leasing(&wan, day()).build().unwrap();
    let before = other.peek("hot").await.unwrap().remaining;
    limiter.return_leases().await.unwrap();
    let after = other.peek("hot").await.unwrap().remaining;
    // All unused tokens return except one, which the bucket could have gained meanwhile.
    assert!(before < 939 && after == 939, "{before} and then {after}");
    // The local lease is empty: the next request goes to the backend and takes another token.
    assert_eq!(next(&limiter).await.source, Source::Backend);
    limiter.return_leases().await.unwrap();
    assert_eq!(other.peek("hot").await.unwrap().remaining, 937);
}

#[tokio::test(start_paused = true)]
async fn no_tokens_return_after_the_lease_or_for_windows_or_while_the_circuit_is_open() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = leasing(&wan, Policy::new("day", Quota::per_day(1_000)));
    let limiter = limiter.build().unwrap();
    warm_up(&limiter, 60).await;
    let before = limiter.peek("hot").await.unwrap().remaining;
    advance(2 * LEASE).await;
    limiter.return_leases().await.unwrap();
    assert_eq!(limiter.peek("hot").await.unwrap().remaining, before);
    let window = leasing(
        &wan,
        Policy::new("window", Quota::per_day(1_000)).fixed_window(),
    );
    let window = window.build().unwrap();
    warm_up(&window, 60).await;
    let before = window.peek("hot").await.unwrap().remaining;
    window.return_leases().await.unwrap();
    assert_eq!(window.peek("hot").await.unwrap().remaining, before);
    warm_up(&limiter, 60).await;
    wan.is_silent();
    for _ in 0..5 {
        assert!(limiter.check("other").await.is_err());
    }
    assert!(limiter.return_leases().await.is_err());
    assert_eq!(limiter.check("hot").await.unwrap().source, Source::Lease);
}

/// The key's own quota refills the bucket twice as fast as the policy's.
#[tokio::test(start_paused = true)]
async fn tokens_return_by_the_quota_of_their_lease() {
    let wan = Wan::away(Duration::ZERO);
    let policy = || Policy::new("fast", Quota::per_second(20).burst(2_000)).dynamic_quotas();
    let own = |limiter: Limiter| limiter.with_quota(Quota::per_second(40).burst(2_000));
    let limiter = own(leasing(&wan, policy()).build().unwrap());
    for _ in 0..200 {
        advance(Duration::from_millis(5)).await;
        limiter.check("hot").await.unwrap();
    }
    let exact = own(Limiter::new(wan.clone(), policy()).unwrap());
    let store = exact.peek("hot").await.unwrap().remaining;
    // Every refill was granted in full, and 200 tokens are spent.
    let leased: u64 = wan.asked().iter().map(|one| one.want).sum();
    let here = leased - 200;
    assert!(here > 50, "{here}");
    limiter.return_leases().await.unwrap();
    let back = exact.peek("hot").await.unwrap().remaining - store;
    // The bucket gains 40 in a lease time and 2 within the timeout.
    assert_eq!(back, here - 42);
}

#[tokio::test(start_paused = true)]
async fn tokens_that_the_bucket_gains_before_the_message_arrives_do_not_return() {
    const TIMEOUT: Duration = Duration::from_millis(500);
    let wan = Wan::away(Duration::ZERO);
    // The bucket gains 20 in a lease time and 10 within the timeout.
    let policy = || Policy::new("fast", Quota::per_second(20).burst(2_000));
    let limiter = leasing(&wan, policy()).backend_timeout(TIMEOUT);
    let limiter = limiter.build().unwrap();
    for _ in 0..200 {
        advance(Duration::from_millis(5)).await;
        limiter.check("hot").await.unwrap();
    }
    let exact = Limiter::builder(wan.clone(), policy()).build().unwrap();
    let store = exact.peek("hot").await.unwrap().remaining;
    let leased: u64 = wan.asked().iter().map(|one| one.want).sum();
    // Every refill was granted in full, and 200 tokens are spent.
    let here = leased - 200;
    assert!(here > 40, "{here}");
    limiter.return_leases().await.unwrap();
    let back = exact.peek("hot").await.unwrap().remaining - store;
    assert_eq!(back, here - 20 - 10);
}

#[tokio::test(start_paused = true)]
async fn return_leases_fails_if_no_tokens_could_return() {
    let store = Scripted::new(Mood::AtOnce);
    let day = Policy::new("day", Quota::per_day(1_000));
    let limiter = Limiter::builder(store.clone(), day).consistency(Consistency::leased_for(LEASE));
    let limiter = limiter.build().unwrap();
    warm_up(&limiter, 60).await;
    assert_eq!(next(&limiter).await.source, Source::Lease);
    store.is(Mood::Failing);
    assert!(limiter.return_leases().await.is_err());
}
