//! How much to ask for, and when again. Pure.

use super::demand::scale;

/// Requests in a lease time from which on a key is worth a lease. Below, a lease saves too few round trips for the tokens that die
/// with it.
pub(super) const HOT: u64 = 16;

/// Short grants in a row after which the pause is as long as it gets: that of 2⁴ = 16 requests, so that even a key that is always
/// short costs a round trip per 16 decisions.
const MOST_SHORT: u8 = 5;

/// The requests that a key which is always short waits for, and asks for.
const BATCH: u64 = 1 << (MOST_SHORT - 1);

/// What a key is asked for, and what is known about its tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    /// Requests in a lease time.
    pub(super) demand: u64,
    /// Of each.
    pub(super) cost: u64,
    /// Tokens that are held here.
    pub(super) held: u64,
    /// Tokens that the store had when it last answered.
    pub(super) remaining: u64,
    /// The most that it ever has.
    pub(super) burst: u64,
}

impl Outlook {
    /// How many tokens to ask for in advance: three quarters of what is needed in a lease time, so that hardly any die with it; but no
    /// more than a quarter of what there is, so that shares shrink as the limit comes near and others find something, too.
    /// And of little, a batch.
    pub(super) fn extra(self) -> u64 {
        let target = (self.demand - self.demand / 4).saturating_mul(self.cost);
        let batch = BATCH.saturating_mul(self.cost).min(self.burst / 4);
        target
            .saturating_sub(self.held)
            .min((self.remaining / 4).max(batch))
    }
}

/// How often in a row the store had less than was wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shortage(u8);

impl Shortage {
    /// After an answer. One full grant does not end a shortage, but makes it less.
    pub(super) fn after(self, short: bool) -> Self {
        Self(if short {
            (self.0 + 1).min(MOST_SHORT)
        } else {
            self.0.saturating_sub(1)
        })
    }

    /// Whether it has not ended after some pauses: not only for a moment.
    pub(super) fn lasts(self) -> bool {
        self.0 >= 3
    }

    /// How long not to ask again: the time of 1, 2, 4, 8, 16 requests, and no longer than a lease. So a key that is short for a moment is
    /// decided one by one.
    pub(super) fn pause(self, demand: u64, lease: u64) -> u64 {
        match self.0 {
            0 => 0,
            row => scale(lease, 1 << (row - 1), demand.max(1)).min(lease),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: Outlook = Outlook {
        demand: 400,
        cost: 1,
        held: 0,
        remaining: 1_000_000,
        burst: 1_000_000,
    };

    #[test]
    fn of_plenty_most_of_the_demand_is_asked_for() {
        assert_eq!(PLENTY.extra(), 300);
        let held = Outlook {
            held: 100,
            ..PLENTY
        };
        assert_eq!(held.extra(), 200);
        let costly = Outlook { cost: 3, ..PLENTY };
        assert_eq!(costly.extra(), 900);
    }

    #[test]
    fn shares_shrink_with_what_is_left() {
        let of = |remaining| {
            Outlook {
                remaining,
                burst: 400,
                ..PLENTY
            }
            .extra()
        };
        assert_eq!((of(400), of(200), of(80), of(0)), (100, 50, 20, BATCH));
    }

    #[test]
    fn of_little_a_batch_of_requests_is_asked_for_whatever_they_cost() {
        let costly = Outlook {
            cost: 3,
            remaining: 0,
            ..PLENTY
        };
        assert_eq!(costly.extra(), 3 * BATCH);
    }

    #[test]
    fn a_shortage_lasts_from_the_third_answer_on() {
        let (mut short, mut lasts) = (Shortage::default(), Vec::new());
        for _ in 0..4 {
            short = short.after(true);
            lasts.push(short.lasts());
        }
        assert_eq!(lasts, [false, false, true, true]);
    }

    #[test]
    fn of_a_burst_too_small_to_share_nothing_is_asked_for() {
        let small = Outlook {
            burst: 3,
            remaining: 3,
            ..PLENTY
        };
        assert_eq!(small.extra(), 0);
    }

    #[test]
    fn pauses_double_while_it_is_short_and_shrink_again() {
        let mut short = Shortage::default();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            short = short.after(true);
            pauses.push(short.pause(100, 100));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 16, 16]);
        assert_eq!(short.after(false).pause(100, 100), 8);
        assert_eq!(short.pause(1, 100), 100);
        assert_eq!(Shortage::default().after(false), Shortage::default());
    }
}
