use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use super::sync::AtomicU64;

/// Tokens that are paid for, and until when they may be spent.
///
/// The word is a generation above the tokens, and changes with every filling, twice. So a spender that has read the deadline of one
/// filling cannot take tokens of another one: reading the later deadline means that the word has changed
/// before, and the swap fails.
#[derive(Debug)]
pub(super) struct Purse {
    word: AtomicU64,
    /// In nanoseconds. Written only between the two changes of the word.
    deadline: AtomicU64,
}

const TOKEN_BITS: u32 = 40;

/// The most tokens in a purse: a lease's worth of a million million requests.
pub(super) const MAX_TOKENS: u64 = (1 << TOKEN_BITS) - 1;

impl Purse {
    pub(super) fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
        }
    }

    pub(super) fn deadline(&self) -> u64 {
        self.deadline.load(Acquire)
    }

    /// What can be spent now.
    pub(super) fn left(&self, now: u64) -> u64 {
        let tokens = self.word.load(Acquire) & MAX_TOKENS;
        if now < self.deadline() { tokens } else { 0 }
    }

    /// Takes `cost` tokens before the deadline, and says how many are left. `is_mine` is asked after the tokens were seen and
    /// before they are taken: it says whose they were then.
    #[inline]
    pub(super) fn spend(&self, cost: u64, now: u64, is_mine: impl Fn() -> bool) -> Option<u64> {
        let mut word = self.word.load(Acquire);
        loop {
            let left = (word & MAX_TOKENS).checked_sub(cost)?;
            if now >= self.deadline() || !is_mine() {
                return None;
            }
            match self
                .word
                .compare_exchange_weak(word, word - cost, AcqRel, Acquire)
            {
                Ok(_) => return Some(left),
                Err(changed) => word = changed,
            }
        }
    }

    /// Lets what is left die, and puts in so many tokens; says how many died. One at a time: the caller holds a lock.
    pub(super) fn fill(&self, tokens: u64, deadline: u64) -> u64 {
        let mut generation = self.word.load(Acquire) >> TOKEN_BITS;
        generation += 1;
        // Also the tokens that are being spent right now are gone with this, or were spent before it.
        let before = self.word.swap(generation << TOKEN_BITS, AcqRel);
        self.deadline.store(deadline, Release);
        generation += 1;
        let word = generation << TOKEN_BITS | tokens.min(MAX_TOKENS);
        self.word.store(word, Release);
        before & MAX_TOKENS
    }
}

#[cfg(all(test, not(tower_dist_ratelimit_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_cannot_be_spent_at_the_deadline() {
        let purse = Purse::new();
        purse.fill(5, 100);
        assert_eq!(purse.spend(2, 99, || true), Some(3));
        assert_eq!(purse.spend(1, 100, || true), None);
        assert_eq!((purse.left(99), purse.left(100)), (3, 0));
    }

    #[test]
    fn nobody_spends_more_than_there_is_nor_what_is_another_s() {
        let purse = Purse::new();
        purse.fill(5, 100);
        assert_eq!(purse.spend(6, 0, || true), None);
        assert_eq!(purse.spend(1, 0, || false), None);
        assert_eq!(purse.spend(5, 0, || true), Some(0));
        assert_eq!(purse.spend(1, 0, || true), None);
    }

    #[test]
    fn a_generation_that_comes_round_takes_no_tokens_with_it() {
        let purse = Purse::new();
        purse.word.store(u64::MAX, Release);
        purse.fill(7, 100);
        assert_eq!(purse.left(0), 7);
    }
}
