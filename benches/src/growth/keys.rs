use std::time::Duration;

use tower::Layer;
use tower_hedge_latency::HedgeLayer;

use crate::hedge::{AtOnce, runtime};
use crate::measure::{Case, Figure, Subject};

const KEYS: [(&str, u64); 3] = [("1", 1), ("16", 16), ("256", 256)];

/// A percentile per key, with requests of all keys in turn.
pub(super) fn case() -> Case {
    let subjects = KEYS.map(|(subject, keys)| {
        let delay = Duration::from_millis(50);
        let builder = HedgeLayer::builder().initial_delay(delay).min_delay(delay);
        let layer = builder.key(move |request: &u64| request % keys).build();
        let service = layer.expect("valid").layer(AtOnce);
        let mut next = 0;
        let request = move || {
            next += 1;
            next
        };
        Subject::in_runtime(subject, service, request, &runtime())
    });
    Case::new(
        "growth, keys of a percentile",
        Figure::Access,
        subjects.into(),
    )
}
