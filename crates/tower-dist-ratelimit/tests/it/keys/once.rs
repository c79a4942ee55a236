//! Extractors and exemptions run once per request.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tower_dist_ratelimit::{CallLimitLayer, RateLimitLayerBuilder};

use super::*;
use crate::support::Broken;

/// Sends requests without a key and returns how often the key extractor and the exemption ran for each.
async fn looks(
    missing: MissingKey,
    exempt: bool,
    change: impl FnOnce(RateLimitLayerBuilder) -> RateLimitLayerBuilder,
) -> (usize, usize) {
    let counts: [Arc<AtomicUsize>; 2] = Default::default();
    let [keys, exemptions] = counts.clone();
    let policy = Policy::new("p", slow(9)).by_fn(move |head| {
        keys.fetch_add(1, Relaxed);
        head.headers().get("key").cloned()
    });
    let builder = change(RateLimitLayer::builder(Memory::default()));
    let builder = builder.limit(policy.missing_key(missing)).exempt(move |_| {
        exemptions.fetch_add(1, Relaxed);
        exempt
    });
    let mut service = builder.build().unwrap().layer(Probe::default());
    send(&mut service, get()).await;
    (counts[0].load(Relaxed), counts[1].load(Relaxed))
}

#[tokio::test(start_paused = true)]
async fn key_extractors_and_exemptions_run_once_per_request() {
    for missing in [MissingKey::Shared, MissingKey::Skip, MissingKey::Reject] {
        assert_eq!(looks(missing, false, |b| b).await, (1, 1), "{missing:?}");
        assert_eq!(looks(missing, true, |b| b).await, (0, 1), "{missing:?}");
        // Shadow mode disables the layer's shortcut.
        assert_eq!(looks(missing, false, |b| b.shadow()).await, (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn exemptions_run_once_per_request_while_the_circuit_is_open() {
    let looks = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&looks);
    let builder = RateLimitLayer::builder(Broken).limit(Policy::new("p", slow(9)));
    let builder = builder.exempt(move |_| seen.fetch_add(1, Relaxed) > 1_000);
    let mut service = builder.build().unwrap().layer(Probe::default());
    for number in 1..=20 {
        send(&mut service, get()).await;
        assert_eq!(looks.load(Relaxed), number);
    }
}

#[tokio::test(start_paused = true)]
async fn key_extractors_run_once_per_call() {
    for missing in [MissingKey::Shared, MissingKey::Skip, MissingKey::Reject] {
        let looks = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&looks);
        let policy = Policy::new("p", slow(9)).missing_key(missing);
        let policy = policy.by_request(move |_: &Request<()>| {
            seen.fetch_add(1, Relaxed);
            None::<u64>
        });
        let layer = CallLimitLayer::builder(Memory::default()).limit(policy);
        let mut service = layer.build().unwrap().layer(Probe::default());
        let _ = tower::ServiceExt::ready(&mut service).await.unwrap();
        let _ = tower::Service::call(&mut service, get()).await;
        assert_eq!(looks.load(Relaxed), 1, "{missing:?}");
    }
}
