use super::*;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Failing since five requests at zero.
fn open(seed: u64) -> Breaker {
    let breaker = Breaker::new(ms(50), seed);
    for nth in 1..=5 {
        let leave = breaker.leave(|| ms(0)).expect("closed");
        let change = breaker.failed(leave, ms(0));
        assert_eq!(change, (nth == 5).then_some(Change::Opened));
    }
    breaker
}

fn is_quiet(breaker: &Breaker) -> bool {
    breaker.leave_if_closed() == Some(Leave::Quiet)
}

fn due(breaker: &Breaker) -> Duration {
    breaker.open_for(|| ms(0)).expect("open")
}

#[test]
fn it_opens_once_and_closes_once() {
    let breaker = open(1);
    // Asked before.
    assert_eq!(breaker.failed(Leave::Closed, ms(3)), None);
    assert_eq!(breaker.answered(Leave::Quiet, ms(3), false), None);
    let at = due(&breaker);
    assert_eq!(breaker.leave(|| at - ms(1)), Err(ms(1)));
    let probe = breaker.leave(|| at).unwrap();
    assert!(matches!(probe, Leave::Probe(_)));
    assert!(breaker.leave(|| at).is_err(), "one at a time");
    assert_eq!(breaker.answered(probe, at, false), Some(Change::Closed));
    assert_eq!(
        breaker.leave(|| at),
        Ok(Leave::Quiet),
        "and all is forgotten"
    );
    assert_eq!(breaker.answered(probe, at, false), None);
}

#[test]
fn a_probe_that_is_old_news_changes_nothing() {
    let breaker = open(1);
    let first = breaker.leave(|| ms(100)).unwrap();
    // Nobody has heard of the first one again.
    let second = breaker.leave(|| ms(9_000)).unwrap();
    assert!(matches!(second, Leave::Probe(_)));
    let before = due(&breaker);
    breaker.failed(first, ms(9_001));
    breaker.spared(first, ms(9_001));
    assert_eq!(due(&breaker), before);
}

#[test]
fn pauses_differ_from_instance_to_instance_and_are_the_same_for_a_seed() {
    let pauses: std::collections::BTreeSet<_> = (0..100).map(|seed| due(&open(seed))).collect();
    assert!(pauses.len() > 95, "{pauses:?}");
    assert!(pauses.first() >= Some(&ms(50)) && pauses.last() <= Some(&ms(100)));
    assert!(*pauses.first().unwrap() < ms(55) && *pauses.last().unwrap() > ms(95));
    assert_eq!(due(&open(7)), due(&open(7)));
}

#[test]
fn a_store_that_answers_at_once_is_counted_only_after_a_failure() {
    let breaker = Breaker::new(ms(50), 1);
    breaker.failed(Leave::Quiet, ms(0));
    assert!(!is_quiet(&breaker));
    breaker.answered(Leave::Closed, ms(1), true);
    assert!(!is_quiet(&breaker), "one of two has failed");
    breaker.answered(Leave::Closed, ms(1_000), true);
    assert!(is_quiet(&breaker));
}

#[test]
fn the_pause_after_a_probe_begins_when_it_has_failed() {
    for seed in 0..100 {
        let breaker = open(seed);
        let at = due(&breaker);
        let probe = breaker.leave(|| at).unwrap();
        // As long as it has, and a pause of 100 to 200 ms.
        assert!((at + ms(150)..=at + ms(250)).contains(&due(&breaker)));
        breaker.failed(probe, at + ms(1));
        assert!((at + ms(101)..=at + ms(201)).contains(&due(&breaker)));
    }
}
