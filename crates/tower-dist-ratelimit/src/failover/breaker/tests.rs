use super::*;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A breaker that five failures at time zero have opened.
fn open(seed: u64) -> Breaker {
    let breaker = Breaker::new(ms(50), seed);
    for nth in 1..=5 {
        let permit = breaker.permit(|| ms(0)).expect("closed");
        let opened = breaker.failed(permit, ms(0));
        assert_eq!(opened, nth == 5);
    }
    breaker
}

fn is_quiet(breaker: &Breaker) -> bool {
    breaker.permit_if_closed() == Some(Access::Quiet)
}

fn due(breaker: &Breaker) -> Duration {
    breaker.open_for(|| ms(0)).expect("open")
}

#[test]
fn the_circuit_opens_once_and_closes_once() {
    let breaker = open(1);
    // Outcomes of requests that were sent before the circuit opened.
    assert!(!breaker.failed(Access::Closed(0), ms(3)));
    assert!(!breaker.answered(Access::Quiet, ms(3), false));
    let at = due(&breaker);
    assert_eq!(breaker.permit(|| at - ms(1)), Err(ms(1)));
    let probe = breaker.permit(|| at).unwrap();
    assert!(matches!(probe, Access::Probe(_)));
    assert!(breaker.permit(|| at).is_err(), "one probe at a time");
    assert!(breaker.answered(probe, at, false));
    assert_eq!(
        breaker.permit(|| at),
        Ok(Access::Quiet),
        "the record is cleared"
    );
    assert!(!breaker.answered(probe, at, false));
}

#[test]
fn a_permit_knows_how_many_failures_came_before_it() {
    let breaker = Breaker::new(ms(50), 1);
    let permit = || breaker.permit(|| ms(0)).unwrap();
    let (first, second) = (permit(), permit());
    assert!(!breaker.failed(first, ms(1)));
    assert!(!breaker.failed(second, ms(1)));
    assert_eq!(permit(), Access::Closed(1), "both were in flight together");
    assert!(!breaker.failed(permit(), ms(2)));
    assert_eq!(permit(), Access::Closed(2));
}

#[test]
fn a_superseded_probe_changes_nothing() {
    let breaker = open(1);
    let first = breaker.permit(|| ms(100)).unwrap();
    // The first probe has not ended.
    let second = breaker.permit(|| ms(9_000)).unwrap();
    assert!(matches!(second, Access::Probe(_)));
    let before = due(&breaker);
    breaker.failed(first, ms(9_001));
    breaker.release(first, ms(9_001));
    assert_eq!(due(&breaker), before);
}

#[test]
fn pauses_differ_between_instances_and_repeat_for_a_seed() {
    let pauses: std::collections::BTreeSet<_> = (0..100).map(|seed| due(&open(seed))).collect();
    assert!(pauses.len() > 95, "{pauses:?}");
    assert!(pauses.first() >= Some(&ms(50)) && pauses.last() <= Some(&ms(100)));
    assert!(*pauses.first().unwrap() < ms(55) && *pauses.last().unwrap() > ms(95));
    assert_eq!(due(&open(7)), due(&open(7)));
}

#[test]
fn immediate_decisions_are_counted_only_after_a_failure() {
    let breaker = Breaker::new(ms(50), 1);
    breaker.failed(Access::Quiet, ms(0));
    assert!(!is_quiet(&breaker));
    breaker.answered(Access::Closed(0), ms(1), true);
    assert!(!is_quiet(&breaker), "one of two has failed");
    breaker.answered(Access::Closed(0), ms(1_000), true);
    assert!(is_quiet(&breaker));
}

#[test]
fn the_pause_after_a_probe_begins_when_the_probe_fails() {
    for seed in 0..100 {
        let breaker = open(seed);
        let at = due(&breaker);
        let probe = breaker.permit(|| at).unwrap();
        // The timeout of 50 ms, and a pause of 100 to 200 ms.
        assert!((at + ms(150)..=at + ms(250)).contains(&due(&breaker)));
        breaker.failed(probe, at + ms(1));
        assert!((at + ms(101)..=at + ms(201)).contains(&due(&breaker)));
    }
}
