//! The behaviour of the flaky upstream, as a pure function from random numbers to an outcome.

use std::time::Duration;

/// The behaviour of the upstream.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Profile {
    /// The latencies of `tail`; also 6 % answer 503, one in twelve of them with `Retry-After: 1`,
    /// and 0.1 % never answer.
    Default,
    /// 97 % of answers take 15 ms, 3 % take 115 ms (the demo of "hedged requests in Go").
    Tail,
}

/// The outcome of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Status 200 after this delay.
    Answer(Duration),
    /// Status 503 after this delay, with or without `Retry-After: 1`.
    Unavailable { delay: Duration, retry_after: bool },
    /// No response until the client closes the connection.
    Stall,
    /// The connection is closed without a response.
    Reset,
}

const USUAL: Duration = Duration::from_millis(15);
const SLOW: Duration = Duration::from_millis(115);
const SLOW_SHARE: f64 = 0.03;
const STALL_SHARE: f64 = 0.001;
const FAILURE_SHARE: f64 = 0.06;
const HINT_SHARE: f64 = FAILURE_SHARE / 12.0;

impl Profile {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Profile::Default => "default",
            Profile::Tail => "tail",
        }
    }

    /// `pace` decides the latency and `fate` the status, both uniform in [0, 1).
    pub(crate) fn outcome(self, pace: f64, fate: f64) -> Outcome {
        let delay = if pace < SLOW_SHARE { SLOW } else { USUAL };
        match self {
            Profile::Default if fate < FAILURE_SHARE => Outcome::Unavailable {
                delay,
                retry_after: fate < HINT_SHARE,
            },
            Profile::Default if fate < FAILURE_SHARE + STALL_SHARE => Outcome::Stall,
            Profile::Default | Profile::Tail => Outcome::Answer(delay),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of an even grid over [0, 1)² whose outcome passes the test.
    fn share(profile: Profile, test: impl Fn(Outcome) -> bool) -> f64 {
        let steps = || (0..1000).map(|i| f64::from(i) / 1000.0);
        let hits = steps()
            .flat_map(|pace| steps().map(move |fate| profile.outcome(pace, fate)))
            .filter(|outcome| test(*outcome))
            .count();
        hits as f64 / 1e6
    }

    fn near(share: f64, expected: f64) -> bool {
        (share - expected).abs() < 1e-9
    }

    #[test]
    fn tail_is_97_to_3_and_never_fails() {
        assert!(near(
            share(Profile::Tail, |o| o == Outcome::Answer(USUAL)),
            0.97
        ));
        assert!(near(
            share(Profile::Tail, |o| o == Outcome::Answer(SLOW)),
            0.03
        ));
    }

    #[test]
    fn default_fails_6_percent_and_stalls_a_thousandth() {
        let failed = |o| matches!(o, Outcome::Unavailable { .. });
        let hinted = |o| {
            matches!(
                o,
                Outcome::Unavailable {
                    retry_after: true,
                    ..
                }
            )
        };
        assert!(near(share(Profile::Default, failed), 0.06));
        assert!(near(share(Profile::Default, hinted), 0.005));
        assert!(near(
            share(Profile::Default, |o| o == Outcome::Stall),
            0.001
        ));
    }
}
