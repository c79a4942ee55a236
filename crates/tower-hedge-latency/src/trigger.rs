mod percentile;

use std::time::Duration;

use tower_attempt::BuildError;

pub(crate) use self::percentile::{DelayBounds, Percentile, micros};

/// Maximum number of hedges per call. More hedges would hardly make the tail shorter, and each one takes memory.
const MAX_HEDGES: usize = 100;

/// When hedges are due, as offsets from the call's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// Hedge k is due after k times the learned or initial delay.
    Percentile,
    /// Hedge k is due after k times the delay.
    Fixed(Duration),
    /// Hedge k is due at the k-th offset from the call's start.
    Delays(Vec<Duration>),
    /// All hedges are due at the call's start. The number of attempts includes the first one.
    FanOut(u32),
}

impl Trigger {
    /// The time at which the 0-based `hedge` is due, given the learned or initial delay. `None` means that the hedge
    /// does not exist or that no delay is known.
    #[inline]
    pub(crate) fn due(
        &self,
        hedge: u32,
        max_hedges: u32,
        learned: Option<Duration>,
    ) -> Option<Duration> {
        if hedge >= max_hedges {
            return None;
        }
        let multiple = |delay: Duration| match hedge {
            0 => delay,
            _ => delay.saturating_mul(hedge.saturating_add(1)),
        };
        match self {
            Self::Percentile => learned.map(multiple),
            Self::Fixed(delay) => Some(multiple(*delay)),
            Self::Delays(delays) => delays.get(usize::try_from(hedge).ok()?).copied(),
            Self::FanOut(_) => Some(Duration::ZERO),
        }
    }

    /// Returns the maximum number of hedges per call. Delays and a fan-out set the number themselves.
    pub(crate) fn max_hedges(&self, given: Option<u32>) -> u32 {
        match self {
            Self::Percentile | Self::Fixed(_) => given.unwrap_or(1),
            Self::Delays(delays) => u32::try_from(delays.len()).unwrap_or(u32::MAX),
            Self::FanOut(attempts) => attempts - 1,
        }
    }

    /// Checks the trigger together with a given number of hedges.
    pub(crate) fn validate(&self, max_hedges: Option<u32>) -> Result<(), BuildError> {
        match (self, max_hedges) {
            (Self::Delays(delays), _) if !(1..=MAX_HEDGES).contains(&delays.len()) => {
                let value = format_args!("a list of {}", delays.len());
                let bound = "a list of 1 to 100";
                Err(BuildError::new("delays", value, bound))
            }
            (Self::Delays(delays), _) if !delays.is_sorted() => {
                Err(BuildError::new("delays", delays, "in ascending order"))
            }
            (Self::FanOut(attempts @ (0..=1 | 102..)), _) => {
                let bound = "from 2 to 101 attempts in all";
                Err(BuildError::new("fan_out", attempts, bound))
            }
            (Self::Delays(_), Some(_)) => Err(BuildError::besides("max_hedges", "delays")),
            (Self::FanOut(_), Some(_)) => Err(BuildError::besides("max_hedges", "fan_out")),
            (_, Some(hedges @ (0 | 101..))) => {
                Err(BuildError::new("max_hedges", hedges, "from 1 to 100"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn all(trigger: &Trigger, max_hedges: Option<u32>) -> Vec<Duration> {
        let max_hedges = trigger.max_hedges(max_hedges);
        let due = |hedge| trigger.due(hedge, max_hedges, None);
        (0..).map_while(due).collect()
    }

    #[test]
    fn hedges_are_due_at_offsets_from_the_start() {
        let fixed = Trigger::Fixed(ms(21));
        assert_eq!(all(&fixed, None), [ms(21)]);
        assert_eq!(all(&fixed, Some(3)), [ms(21), ms(42), ms(63)]);
        let delays = Trigger::Delays(vec![ms(21), ms(30)]);
        assert_eq!(all(&delays, None), [ms(21), ms(30)]);
        assert_eq!(all(&Trigger::FanOut(3), None), [Duration::ZERO; 2]);
    }

    #[test]
    fn a_learned_delay_is_a_fixed_one_once_it_is_known() {
        let percentile = Trigger::Percentile;
        assert_eq!(percentile.due(0, 1, None), None);
        assert_eq!(percentile.due(0, 1, Some(ms(7))), Some(ms(7)));
        assert_eq!(percentile.due(1, 1, Some(ms(7))), None);
        assert_eq!(percentile.due(1, 2, Some(ms(7))), Some(ms(14)));
    }

    #[test]
    fn a_huge_delay_saturates() {
        let fixed = Trigger::Fixed(Duration::MAX);
        assert_eq!(fixed.due(u32::MAX - 1, u32::MAX, None), Some(Duration::MAX));
    }

    #[test]
    fn a_wrong_value_is_named_with_its_bound() {
        let delays = |delays: &[Duration]| Trigger::Delays(delays.to_vec());
        for (trigger, max_hedges, message) in [
            (
                delays(&[]),
                None,
                "delays is a list of 0, but must be a list of 1 to 100",
            ),
            (
                delays(&[ms(1); 101]),
                None,
                "delays is a list of 101, but must be a list of 1 to 100",
            ),
            (
                Trigger::FanOut(102),
                None,
                "fan_out is 102, but must be from 2 to 101 attempts in all",
            ),
            (
                Trigger::Fixed(ms(1)),
                Some(101),
                "max_hedges is 101, but must be from 1 to 100",
            ),
            (
                delays(&[ms(2), ms(1)]),
                None,
                "delays is [2ms, 1ms], but must be in ascending order",
            ),
            (
                delays(&[ms(1)]),
                Some(2),
                "max_hedges is set, but must be unset besides delays",
            ),
            (
                Trigger::FanOut(1),
                None,
                "fan_out is 1, but must be from 2 to 101 attempts in all",
            ),
            (
                Trigger::FanOut(3),
                Some(2),
                "max_hedges is set, but must be unset besides fan_out",
            ),
            (
                Trigger::Fixed(ms(1)),
                Some(0),
                "max_hedges is 0, but must be from 1 to 100",
            ),
        ] {
            let error = trigger.validate(max_hedges).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
