use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const TIMEOUT: Duration = ms(50);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn pauses() -> Pauses {
    Pauses { timeout: TIMEOUT }
}

/// The circuit after this change.
fn changed(mut circuit: Circuit, change: impl FnOnce(&mut Circuit)) -> Circuit {
    change(&mut circuit);
    circuit
}

/// The circuit after one more outcome, with the least noise.
fn counted(circuit: Circuit, row: Option<u8>, at: Duration) -> Circuit {
    changed(circuit, |circuit| circuit.count(row, at, pauses(), 0))
}

/// The circuit after these decisions (true: failed), one after the other, with the least noise.
fn after(decisions: impl IntoIterator<Item = (u64, bool)>) -> Circuit {
    let quiet = Circuit::default();
    decisions.into_iter().fold(quiet, |circuit, (at, failed)| {
        counted(circuit, failed.then(|| circuit.row()), ms(at))
    })
}

/// The circuit after a failure of each of these requests, which were sent at this circuit.
fn after_failures_together(circuit: Circuit, requests: usize, at: u64) -> Circuit {
    (0..requests).fold(circuit, |now, _| counted(now, Some(circuit.row()), ms(at)))
}

const OPENED_AT_NINE: Circuit = Circuit::Open {
    probes: 0,
    due: ms(59),
};

#[test]
fn five_consecutive_failures_open_the_circuit_however_far_apart() {
    let slowly = |count: u64| after((1..=count).map(|n| (n * 3_600_000, true)));
    assert!(!slowly(4).is_open());
    assert!(slowly(5).is_open());
    assert_eq!(after((5..=9).map(|at| (at, true))), OPENED_AT_NINE);
    // A decision ends the row of failures.
    let twice = (0..4).chain(5..9).map(|at| (at, true));
    let broken = twice.chain([(4, false)]).collect::<Vec<_>>();
    let mut sorted = broken;
    sorted.sort_unstable();
    assert!(!after(sorted.into_iter().take(9)).is_open());
}

#[test]
fn failures_of_requests_in_flight_together_count_as_one_in_the_row() {
    // Of 1,000 decisions in the last second, fewer than half fail.
    let busy = after((0..1_000).map(|_| (0, false)));
    let lost = |before, at| after_failures_together(before, 100, at);
    let four = (1..=4).fold(busy, lost);
    assert!(!four.is_open());
    assert!(lost(four, 5).is_open(), "the fifth in the row");
    // A decision between the failures ends the row, also for the requests that were sent before it.
    let decided = counted(four, None, ms(5));
    let late = counted(decided, Some(four.row()), ms(6));
    assert_eq!((decided.row(), late.row()), (0, 1));
    let all_late = (0..9).fold(late, |now, _| counted(now, Some(four.row()), ms(6)));
    assert_eq!(all_late.row(), 1);
    // Without other decisions, ten failures open the circuit, whenever their requests were sent.
    let quiet = Circuit::default();
    assert!(!after_failures_together(quiet, 9, 0).is_open());
    assert!(after_failures_together(quiet, 10, 0).is_open());
}

#[test]
fn the_circuit_opens_if_half_of_at_least_ten_decisions_in_a_second_failed() {
    let turns = |count: u64| (0..count).map(|at| (at, at % 2 == 1));
    assert!(!after(turns(9)).is_open());
    assert!(after(turns(10)).is_open());
    let third = |count: u64| (0..count).map(|at| (at, at % 3 == 2));
    assert!(!after(third(400)).is_open());
}

#[test]
fn failures_two_half_seconds_ago_no_longer_count() {
    // Four failures of six, then one of two: five of eight are fewer than ten decisions.
    let failing = [false, true, true, false, true, true].map(|failed| (499, failed));
    let later = |at: u64| [(at, false), (at, false), (at, false), (at, true)];
    let at = |at: u64| after(failing.into_iter().chain(later(at)));
    assert!(at(500).is_open(), "5 of 10");
    assert!(at(999).is_open(), "the same");
    assert!(!at(1_000).is_open(), "1 of 4");
}

#[test]
fn a_decision_with_an_earlier_time_clears_no_counts() {
    let failing = [false, true, true, false, true, true, false].map(|failed| (500, failed));
    let late = [(499, false), (499, false), (500, true)];
    assert!(after(failing.into_iter().chain(late)).is_open(), "5 of 10");
}

#[test]
fn many_decisions_keep_their_failure_rate() {
    // The last two of each five fail: less than half.
    let some = |count: u64| (0..count).map(|n| (0, n % 5 >= 3));
    assert!(!after(some(40_000)).is_open());
    // Then three of each five fail.
    let more = (0..4_000).map(|n| (0, n % 5 >= 2));
    assert!(after(some(4_000).chain(more)).is_open());
}

#[test]
fn a_probe_is_due_after_the_pause_and_the_next_one_after_its_timeout_and_pause() {
    assert_eq!(
        OPENED_AT_NINE.probe(ms(59) - Duration::from_nanos(1), pauses(), 0),
        None
    );
    assert_eq!(OPENED_AT_NINE.open_for(ms(9)), Some(ms(50)));
    let probed = OPENED_AT_NINE.probe(ms(59), pauses(), 0).unwrap();
    // The timeout of 50 ms, and half of the pause of 200 ms.
    assert_eq!(
        probed,
        Circuit::Open {
            probes: 1,
            due: ms(209)
        }
    );
    assert_eq!(probed.probe(ms(208), pauses(), 0), None);
    assert!(probed.probe(ms(209), pauses(), 0).is_some());
    assert_eq!(probed.open_for(ms(300)), Some(Duration::ZERO));
}

#[test]
fn the_pause_begins_immediately_when_a_probe_fails_early() {
    let probed = OPENED_AT_NINE.probe(ms(59), pauses(), 0).unwrap();
    let failed = changed(probed, |circuit| circuit.probe_failed(ms(60), pauses(), 0));
    assert_eq!(
        failed,
        Circuit::Open {
            probes: 1,
            due: ms(160)
        }
    );
    let late = changed(probed, |circuit| {
        circuit.probe_failed(ms(109), pauses(), u64::MAX)
    });
    assert_eq!(late, probed, "never later");
}

#[test]
fn after_a_probe_decided_without_the_backend_the_next_request_is_a_probe() {
    let probed = OPENED_AT_NINE.probe(ms(59), pauses(), 0).unwrap();
    let release = changed(probed, |circuit| circuit.probe_spared(ms(60)));
    assert_eq!(
        release,
        Circuit::Open {
            probes: 0,
            due: ms(60)
        }
    );
    assert!(release.probe(ms(60), pauses(), 0).is_some());
}

#[test]
fn outcomes_of_requests_sent_before_the_circuit_opened_change_nothing() {
    for failed in [Some(0), None] {
        let after = changed(OPENED_AT_NINE, |circuit| {
            circuit.count(failed, ms(40), pauses(), 7)
        });
        assert_eq!(after, OPENED_AT_NINE);
    }
}

#[test]
fn the_largest_times_do_not_overflow() {
    let open = Circuit::Open {
        probes: u8::MAX,
        due: Duration::MAX,
    };
    let probed = open.probe(
        Duration::MAX,
        Pauses {
            timeout: Duration::from_secs(60),
        },
        u64::MAX,
    );
    assert_eq!(probed, Some(open));
    let failed = changed(open, |circuit| {
        circuit.probe_failed(Duration::MAX, pauses(), 1)
    });
    assert_eq!(failed, open);
    let failed = (0..5).fold(Circuit::default(), |circuit, _| {
        counted(circuit, Some(circuit.row()), Duration::MAX)
    });
    assert_eq!(
        failed,
        Circuit::Open {
            probes: 0,
            due: Duration::MAX
        }
    );
}

/// The documented rules, on a list of all decisions.
#[derive(Default)]
struct Model {
    row: u32,
    seen: VecDeque<(u64, bool)>,
    open: bool,
}

impl Model {
    fn count(&mut self, failed: bool, at: u64) {
        if self.open {
            return;
        }
        self.row = if failed { self.row + 1 } else { 0 };
        self.seen.push_back((at, failed));
        self.seen.retain(|&(seen, _)| seen / 500 + 1 >= at / 500);
        let (all, failures) = (
            self.seen.len(),
            self.seen.iter().filter(|(_, failed)| *failed).count(),
        );
        self.open = failed && (self.row >= 5 || (all >= 10 && 2 * failures >= all));
    }
}

proptest! {
    #[test]
    fn the_circuit_opens_exactly_when_the_model_does(
        steps in prop::collection::vec((0_u64..400, prop::bool::weighted(0.45)), 1..200),
    ) {
        let mut model = Model::default();
        let mut circuit = Circuit::default();
        let mut at = 0;
        for (pause, failed) in steps {
            // Most decisions come close together.
            at += pause / 8;
            model.count(failed, at);
            circuit.count(failed.then_some(circuit.row()), ms(at), pauses(), at);
            prop_assert_eq!(circuit.is_open(), model.open);
        }
    }

    #[test]
    fn probes_never_overlap(waits in prop::collection::vec((0_u64..3_000, any::<u64>()), 1..60)) {
        let mut circuit = OPENED_AT_NINE;
        let (mut now, mut ends) = (ms(9), ms(0));
        for (wait, noise) in waits {
            now += ms(wait);
            if let Some(probed) = circuit.probe(now, pauses(), noise) {
                prop_assert!(now >= ends + TIMEOUT, "a pause is no shorter than the timeout");
                (circuit, ends) = (probed, now + TIMEOUT);
            }
        }
    }
}
