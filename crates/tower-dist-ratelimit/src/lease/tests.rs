use super::*;
use crate::{Quota, Source, backend::Memory};

#[tokio::test(start_paused = true)]
async fn tokens_charged_outside_a_lease_lower_the_reported_remaining() {
    let policies = ["one", "other"].map(|name| Policy::new(name, Quota::per_day(10_000)));
    let memory = Memory::default();
    let ids = memory.register(&policies).unwrap();
    let times = [Duration::from_secs(1), Duration::from_millis(50)];
    let leasing = Leasing::new(Arc::new(memory), &policies, &ids, times[0], times[1]);
    let next = async || {
        tokio::time::advance(Duration::from_millis(1)).await;
        let mut out = [Decision::default()];
        leasing.acquire(&[Charge::new(ids[0], b"k", 1)], &mut out);
        out[0]
    };
    for _ in 0..100 {
        next().await;
    }
    let before = next().await;
    assert_eq!(before.source, Source::Lease);
    // Charged outside of the lease: a request with two policies, and a settlement above the estimate.
    let both = [ids[0], ids[1]].map(|id| Charge::new(id, b"k", 50));
    let answer = leasing.acquire(&both, &mut [Decision::default(); 2]);
    assert!(matches!(answer, Answer::Done(true)));
    let after = next().await;
    assert_eq!(after.source, Source::Lease);
    assert_eq!(after.remaining, before.remaining - 50 - 1);
    let answer = leasing.settle(&[Charge::new(ids[0], b"k", 7)], 7);
    assert!(matches!(answer, Answer::Done(true)));
    assert_eq!(next().await.remaining, after.remaining - 7 - 1);
}
