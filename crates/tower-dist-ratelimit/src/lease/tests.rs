use super::*;
use crate::{Quota, backend::Memory};

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

#[test]
fn a_rejection_reports_fewer_tokens_than_its_cost_and_a_reset_no_earlier_than_its_wait() {
    let slot = Slot::new();
    // One request is never paid for from two leases.
    slot.fill(3, 100, 0);
    slot.fill(3, 200, 0);
    let ask = Ask {
        tag: 1,
        cost: 5,
        burst: 10,
        now: 0,
        ahead: false,
    };
    let mut out = Decision::default();
    reject(&slot, ask, 40, &mut out);
    let wait = Duration::from_nanos(40);
    assert_eq!((out.remaining, out.retry_after), (4, Some(wait)));
    assert_eq!(out.reset_after, wait);
}
