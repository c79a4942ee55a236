//! Holds hedges back while hedges rarely win.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// If this number of hedges is counted before [`WINS`] of them win, hedges are held back: the cause that slows first
/// attempts probably slows hedges, too.
const HEDGES: u8 = 200;
/// 2 % of [`HEDGES`].
const WINS: u8 = 4;
/// At the last step one of 100 due hedges is allowed, to detect when hedges win again.
const LAST_STEP: u8 = 7;

/// Watches how many hedges win, and holds hedges back if few do.
///
/// At step 0 every due hedge is allowed. Each further step halves the share that is allowed, down to one of 100. Two
/// hundred hedges with fewer than four wins lead to the next step. The fourth win leads one step back immediately,
/// because the rest of the two hundred would take long where few hedges are sent.
///
/// The state is one word: the step, and the hedges and wins since these two counts were last reset.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    state: AtomicU32,
    /// The number of due hedges that [`allows`](Self::allows) checked at steps above 0.
    due: AtomicU32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct GuardState {
    step: u8,
    hedges: u8,
    wins: u8,
}

impl Guard {
    /// Whether a due hedge may be sent.
    pub(crate) fn allows(&self) -> bool {
        match GuardState::from_word(self.state.load(Relaxed)).step {
            0 => true,
            step => {
                // Each step halves the share of due hedges that are allowed, down to one of 100.
                let one_of = (1 << step).min(100);
                self.due.fetch_add(1, Relaxed).is_multiple_of(one_of)
            }
        }
    }

    /// Records the end of a call that sent `hedges` hedges.
    pub(crate) fn record(&self, hedges: u32, won: bool) {
        let next = |word| Some(GuardState::from_word(word).after(hedges, won).word());
        // `next` never returns `None`, so the update succeeds.
        let _ = self.state.fetch_update(Relaxed, Relaxed, next);
    }
}

impl GuardState {
    fn after(self, hedges: u32, won: bool) -> Self {
        let hedges = u32::from(self.hedges).saturating_add(hedges);
        let wins = self.wins + u8::from(won);
        let (step, hedges, wins) = match u8::try_from(hedges) {
            _ if wins >= WINS => (self.step.saturating_sub(1), 0, 0),
            Ok(hedges @ ..HEDGES) => (self.step, hedges, wins),
            _ => ((self.step + 1).min(LAST_STEP), 0, 0),
        };
        Self { step, hedges, wins }
    }

    const fn word(self) -> u32 {
        u32::from_le_bytes([self.step, self.hedges, self.wins, 0])
    }

    const fn from_word(word: u32) -> Self {
        let [step, hedges, wins, _] = word.to_le_bytes();
        Self { step, hedges, wins }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of hedges sent out of `due`, if one in `win_every` wins.
    fn sent(guard: &Guard, due: u32, win_every: Option<u32>) -> u32 {
        let mut sent = 0;
        for _ in 0..due {
            if guard.allows() {
                sent += 1;
                guard.record(1, win_every.is_some_and(|every| sent % every == 0));
            }
        }
        sent
    }

    #[test]
    fn hedges_that_never_win_are_halved_down_to_one_in_a_hundred() {
        let guard = Guard::default();
        assert_eq!(sent(&guard, 200, None), 200);
        assert_eq!(sent(&guard, 200, None), 100);
        assert_eq!(sent(&guard, 200, None), 100);
        assert_eq!(sent(&guard, 400, None), 100);
        sent(&guard, 100_000, None);
        assert_eq!(sent(&guard, 100_000, None), 1000);
    }

    #[test]
    fn two_wins_in_a_hundred_are_enough() {
        let guard = Guard::default();
        assert_eq!(sent(&guard, 100_000, Some(50)), 100_000);
    }

    #[test]
    fn one_win_in_a_hundred_is_too_little() {
        let guard = Guard::default();
        assert!(sent(&guard, 100_000, Some(100)) < 4000);
    }

    #[test]
    fn when_wins_return_so_do_the_hedges() {
        let guard = Guard::default();
        sent(&guard, 200_000, None);
        // From one in a hundred back to all: four wins for each step.
        sent(&guard, 4 * (100 + 64 + 32 + 16 + 8 + 4 + 2) + 100, Some(1));
        assert_eq!(sent(&guard, 1000, Some(10)), 1000);
    }

    #[test]
    fn a_call_with_many_hedges_counts_them_all() {
        let guard = Guard::default();
        guard.record(150, false);
        guard.record(u32::MAX, false);
        assert_eq!(sent(&guard, 100, None), 50);
    }
}
