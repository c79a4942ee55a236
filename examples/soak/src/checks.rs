//! The checks, as pure functions of the measurements. Each returns a row of the table.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;

/// A row of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) measured: String,
    pub(crate) bound: String,
    pub(crate) passed: bool,
}

impl Check {
    pub(crate) fn at_most(name: impl Into<String>, measured: u64, bound: u64, unit: &str) -> Self {
        Self {
            name: name.into(),
            measured: format!("{measured}{unit}"),
            bound: format!("at most {bound}{unit}"),
            passed: measured <= bound,
        }
    }

    /// A fault or a load without the expected effect would make the other checks empty.
    pub(crate) fn at_least(name: impl Into<String>, measured: u64, bound: u64) -> Self {
        Self {
            name: name.into(),
            measured: measured.to_string(),
            bound: format!("at least {bound}"),
            passed: measured >= bound,
        }
    }
}

/// Counts the lines that report a panic.
pub(crate) fn panics(log: &[String]) -> Check {
    let panics = log.iter().filter(|line| line.contains("panicked at"));
    Check::at_most("panics", panics.count() as u64, 0, "")
}

/// How a POST ended for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Post {
    /// A status of success: the upstream executed the request exactly once.
    Succeeded,
    /// A rejection by the rate limit, or the upstream's 503: the upstream did not execute the request.
    Rejected,
    /// 502 or 504: the upstream may have executed the request, once.
    Unknown,
    /// The gateway did not answer.
    NoResponse,
}

/// Compares the outcomes of the POSTs, by id, with the number of times that the upstream executed each.
pub(crate) fn posts(outcomes: &[(u64, Post)], executed: &HashMap<u64, u32>) -> [Check; 4] {
    let count = |is_wrong: &dyn Fn(Post, u32) -> bool| {
        let times = |id| executed.get(id).copied().unwrap_or(0);
        let wrong = outcomes
            .iter()
            .filter(|(id, post)| is_wrong(*post, times(id)));
        wrong.count() as u64
    };
    let lost = count(&|post, times| post == Post::Succeeded && times == 0);
    let doubled = count(&|_, times| times > 1);
    let rejected = count(&|post, times| post == Post::Rejected && times > 0);
    let unanswered = count(&|post, _| post == Post::NoResponse);
    [
        Check::at_most("POSTs lost after a success", lost, 0, ""),
        Check::at_most("POSTs executed twice", doubled, 0, ""),
        Check::at_most("POSTs executed and rejected", rejected, 0, ""),
        Check::at_most("POSTs without a response", unanswered, 0, ""),
    ]
}

/// The time and the duration of an event, since the start of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) at: Duration,
    pub(crate) took: Duration,
}

/// Time around a response in which the control counts.
const NEAR: Duration = Duration::from_millis(500);

/// Checks that each response takes at most `timeout`, plus the scheduling delays of the machine. The control measures
/// these delays: it sends requests straight to the upstream, which answers them immediately.
pub(crate) fn on_time(
    name: &str,
    responses: &[Span],
    timeout: Duration,
    control: &[Span],
) -> Check {
    const MARGIN: Duration = Duration::from_millis(50);
    // A machine that stalls for longer cannot show that responses come in time.
    const MOST_SLACK: Duration = Duration::from_secs(1);
    let slack = |response: &Span| {
        let from = response.at.saturating_sub(NEAR);
        let to = response.at + response.took + NEAR;
        let first = control.partition_point(|span| span.at + NEAR * 20 < from);
        let near = control[first..].iter().take_while(|span| span.at <= to);
        let near = near.filter(|span| span.at + span.took >= from);
        let slowest = near.map(|span| span.took).max().unwrap_or_default();
        (slowest * 2).min(MOST_SLACK)
    };
    let bound = |response: &Span| timeout + MARGIN + slack(response);
    let late = responses.iter().filter(|span| span.took > bound(span));
    // Those beyond their bound come first.
    let worst = responses
        .iter()
        .max_by_key(|span| (span.took.saturating_sub(bound(span)), span.took));
    let millis = |time: Duration| time.as_millis();
    Check {
        name: name.into(),
        measured: worst.map_or("none above".into(), |worst| {
            format!("{} ms", millis(worst.took))
        }),
        bound: format!(
            "{} ms + {} ms of scheduling",
            millis(timeout),
            worst.map_or(0, |worst| millis(bound(worst) - timeout))
        ),
        passed: late.count() == 0,
    }
}

/// Checks that a resource of a process grows by at most a quarter and `margin` between two sets of samples: those after
/// the first round of faults, and those at the end.
pub(crate) fn growth(name: String, first: &[u64], last: &[u64], margin: u64, unit: &str) -> Check {
    let (Some(first), Some(last)) = (median(first), median(last)) else {
        return Check {
            name,
            measured: "no sample".into(),
            bound: "a sample at both times".into(),
            passed: false,
        };
    };
    Check::at_most(name, last, first + first / 4 + margin, unit)
}

fn median(samples: &[u64]) -> Option<u64> {
    let mut samples = samples.to_vec();
    samples.sort_unstable();
    samples.get(samples.len() / 2).copied()
}

/// The length of a slot of time in which admitted requests are counted.
pub(crate) const SLOT: Duration = Duration::from_millis(100);

/// The bound on the requests of one client that a fleet admits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Requests per second.
    pub(crate) rate: u64,
    pub(crate) burst: u64,
    /// The lease, and the time between sending a request and its decision.
    pub(crate) ahead: Duration,
}

/// An event that raises the bound of the intervals that overlap it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exception {
    /// The first and the last slot.
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) bursts: u64,
}

/// Checks every interval: `rate · D` and one burst, plus the exceptions in the interval.
pub(crate) fn admission(
    site: &str,
    admitted: &[u64],
    limit: Limit,
    exceptions: &[Exception],
) -> Check {
    let mut worst = (0.0, 0, 1.0);
    for from in 0..admitted.len() {
        let mut sum = 0;
        for (to, count) in admitted.iter().enumerate().skip(from) {
            sum += count;
            if *count == 0 {
                continue;
            }
            let near = exceptions
                .iter()
                .filter(|event| event.from <= to && event.to >= from);
            let bursts = 1 + near.map(|event| event.bursts).sum::<u64>();
            let time = SLOT.as_secs_f64() * (to - from + 1) as f64 + limit.ahead.as_secs_f64();
            let bound = limit.rate as f64 * time + (limit.burst * bursts) as f64;
            let share = sum as f64 / bound;
            if share > worst.0 {
                worst = (share, sum, bound);
            }
        }
    }
    let (share, sum, bound) = worst;
    Check {
        name: format!("admitted in the fullest interval, {site}"),
        measured: sum.to_string(),
        bound: format!("at most {bound:.0}"),
        // The sum of tenths of a second is not exact.
        passed: share < 1.0 + 1e-9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn span(at: u32, took: u32) -> Span {
        Span {
            at: MS * at,
            took: MS * took,
        }
    }

    #[test]
    fn a_line_of_a_panic_fails_the_check() {
        assert!(panics(&["gateway: circuit opened".into()]).passed);
        assert!(!panics(&["thread 'main' panicked at src/main.rs:1".into()]).passed);
    }

    #[test]
    fn the_executions_of_each_post_match_its_outcome() {
        let passed = |post, times| posts(&[(7, post)], &[(7, times)].into()).map(|c| c.passed);
        assert_eq!(passed(Post::Succeeded, 1), [true; 4]);
        assert_eq!(passed(Post::Rejected, 0), [true; 4]);
        assert_eq!(passed(Post::Unknown, 0), [true; 4]);
        assert_eq!(passed(Post::Unknown, 1), [true; 4]);
        assert_eq!(passed(Post::Succeeded, 0), [false, true, true, true]);
        assert_eq!(passed(Post::Succeeded, 2), [true, false, true, true]);
        assert_eq!(passed(Post::Unknown, 2), [true, false, true, true]);
        assert_eq!(passed(Post::Rejected, 1), [true, true, false, true]);
        assert_eq!(passed(Post::NoResponse, 0), [true, true, true, false]);
    }

    #[test]
    fn a_response_after_its_timeout_fails_unless_the_machine_was_late_too() {
        let check = |control: &[Span]| on_time("d", &[span(5_000, 400)], MS * 250, control).passed;
        assert!(!check(&[]));
        assert!(!check(&[span(5_100, 40)]));
        assert!(check(&[span(5_100, 60)]));
        let check_second =
            |took| on_time("d", &[span(5_000, took)], MS * 250, &[span(5_100, 9_000)]);
        assert!(check_second(1_300).passed && !check_second(1_301).passed);
        // The control is too far away.
        assert!(!check(&[span(1_000, 60), span(9_000, 60)]));
        assert!(on_time("d", &[span(5_000, 290)], MS * 250, &[]).passed);
    }

    #[test]
    fn growth_beyond_a_quarter_and_the_margin_fails() {
        let check =
            |first: &[u64], last: &[u64]| growth("m".into(), first, last, 16, " MiB").passed;
        assert!(check(&[100, 90, 110], &[141, 141, 141]));
        assert!(!check(&[100, 90, 110], &[142, 142, 142]));
        assert!(!check(&[100], &[]) && !check(&[], &[100]));
        // One sample in a peak does not count.
        assert!(check(&[100; 5], &[100, 100, 100, 999, 100]));
    }

    #[test]
    fn an_interval_above_its_bound_fails_and_outages_and_jumps_raise_the_bound() {
        let limit = Limit {
            rate: 100,
            burst: 50,
            ahead: Duration::ZERO,
        };
        let check = |admitted: &[u64], exceptions: &[Exception]| {
            admission("s", admitted, limit, exceptions).passed
        };
        let event = |from, to| Exception {
            from,
            to,
            bursts: 2,
        };
        let mut slots = vec![10; 100];
        slots[40] = 60;
        assert!(check(&slots, &[]));
        slots[60] = 11;
        assert!(!check(&slots, &[]));
        slots[60] = 110;
        assert!(check(&slots, &[event(55, 70)]));
        // An event elsewhere does not excuse the interval.
        assert!(!check(&slots, &[event(0, 5)]));
        slots[60] = 111;
        assert!(!check(&slots, &[event(55, 70)]));
    }
}
