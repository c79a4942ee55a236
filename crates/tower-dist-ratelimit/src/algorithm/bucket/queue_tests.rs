use super::{tests::at, *};

fn queue(quota: Quota, max_wait: Duration) -> Bucket {
    Bucket::new(quota, Some(max_wait)).unwrap()
}

fn charge(queue: &Bucket, empty_at: &mut u64, nanos: u64, cost: u64) -> Decision {
    let take = Take {
        cost,
        up_to: cost + 5,
        quota: None,
    };
    let now = at(queue, nanos);
    let decision = queue.decide(*empty_at, now, &take);
    *empty_at = queue.take(*empty_at, now, decision.granted);
    decision
}

#[test]
fn a_request_waits_for_the_requests_before_it_and_at_most_max_wait() {
    let queue = queue(Quota::per_second(10), Duration::from_millis(250));
    let mut state = 0;
    for (delay, left) in [(0, 2), (100, 1), (200, 0)] {
        let decision = charge(&queue, &mut state, 0, 1);
        assert!(decision.allowed);
        assert_eq!(decision.delay, Duration::from_millis(delay));
        assert_eq!((decision.granted, decision.remaining), (1, left));
    }
    let rejected = charge(&queue, &mut state, 0, 1);
    assert_eq!((rejected.allowed, rejected.delay), (false, Duration::ZERO));
    assert_eq!(rejected.retry_after, Some(Duration::from_millis(50)));
    assert_eq!(rejected.reset_after, Duration::from_millis(300));
    let decision = charge(&queue, &mut state, 50_000_000, 1);
    assert_eq!(decision.delay, Duration::from_millis(250));
}

#[test]
fn an_expensive_request_delays_later_requests() {
    let queue = queue(Quota::per_second(10), Duration::from_secs(1));
    let mut state = 0;
    assert_eq!(charge(&queue, &mut state, 0, 5).delay, Duration::ZERO);
    assert_eq!(
        charge(&queue, &mut state, 0, 1).delay,
        Duration::from_millis(500)
    );
    assert_eq!(charge(&queue, &mut state, 0, 11).retry_after, None);
}

#[test]
fn after_idle_time_nothing_comes_in_a_burst() {
    let queue = queue(Quota::per_second(10), Duration::from_secs(1));
    let mut state = 0;
    charge(&queue, &mut state, 0, 1);
    let day = 86_400_000_000_000;
    assert_eq!(charge(&queue, &mut state, day, 1).delay, Duration::ZERO);
    assert_eq!(
        charge(&queue, &mut state, day, 1).delay,
        Duration::from_millis(100)
    );
}

#[test]
fn a_refund_moves_up_later_requests() {
    let queue = queue(Quota::per_second(10), Duration::from_secs(1));
    let mut state = 0;
    charge(&queue, &mut state, 0, 3);
    let settled = queue.settle(state, at(&queue, 0), -2);
    assert_ne!(settled, state);
    state = settled;
    assert_eq!(
        charge(&queue, &mut state, 0, 1).delay,
        Duration::from_millis(100)
    );
}
