#[cfg(not(all(test, tower_dist_ratelimit_loom)))]
pub(super) use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

#[cfg(all(test, tower_dist_ratelimit_loom))]
pub(super) use ::loom::sync::atomic::AtomicU64;

/// A lease: prepaid tokens and their deadline.
///
/// The low 40 bits of `word` are the tokens. The high 24 bits are a generation, which each fill changes before
/// and after it writes the deadline. So a spender that has read the deadline of one lease cannot take
/// tokens of another: the word has changed meanwhile, and the spender's compare-and-swap fails. A generation
/// recurs only after 2²³ fills.
#[derive(Debug, Default)]
pub(super) struct Prepaid {
    word: AtomicU64,
    /// In nanoseconds. Only `fill` writes it, between its two changes of `word`.
    deadline: AtomicU64,
}

const TOKEN_BITS: u32 = 40;

/// Maximum tokens: about 10¹².
const MAX_TOKENS: u64 = (1 << TOKEN_BITS) - 1;

impl Prepaid {
    pub(super) fn deadline(&self) -> u64 {
        self.deadline.load(Acquire)
    }

    /// Returns the tokens that can be spent at `now`.
    pub(super) fn tokens(&self, now: u64) -> u64 {
        let tokens = self.word.load(Acquire) & MAX_TOKENS;
        if now < self.deadline() { tokens } else { 0 }
    }

    /// Takes `cost` tokens, if there are enough and `now` is before the deadline. Returns whether it took them.
    /// `is_mine` checks that the tokens belong to the caller's key. This check runs between reading the tokens and
    /// taking them.
    #[inline]
    pub(super) fn spend(&self, cost: u64, now: u64, is_mine: impl Fn() -> bool) -> bool {
        let mut word = self.word.load(Acquire);
        while word & MAX_TOKENS >= cost && now < self.deadline() && is_mine() {
            let spent = word - cost;
            match self
                .word
                .compare_exchange_weak(word, spent, AcqRel, Acquire)
            {
                Ok(_) => return true,
                Err(changed) => word = changed,
            }
        }
        false
    }

    /// Replaces the tokens and the deadline, and returns the number of discarded tokens. The caller holds a lock, so
    /// fills of one lease never run concurrently.
    pub(super) fn fill(&self, tokens: u64, deadline: u64) -> u64 {
        let mut generation = self.word.load(Acquire) >> TOKEN_BITS;
        generation += 1;
        // A concurrent spend has either taken tokens before this swap, or cannot take the discarded ones.
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
    fn tokens_cannot_be_spent_at_the_deadline() {
        let prepaid = Prepaid::default();
        prepaid.fill(5, 100);
        assert!(prepaid.spend(2, 99, || true));
        assert!(!prepaid.spend(1, 100, || true));
        assert_eq!((prepaid.tokens(99), prepaid.tokens(100)), (3, 0));
    }

    #[test]
    fn spending_fails_beyond_the_tokens_and_for_another_key() {
        let prepaid = Prepaid::default();
        prepaid.fill(5, 100);
        assert!(!prepaid.spend(6, 0, || true));
        assert!(!prepaid.spend(1, 0, || false));
        assert!(prepaid.spend(5, 0, || true));
        assert!(!prepaid.spend(1, 0, || true));
    }

    #[test]
    fn a_generation_that_wraps_adds_no_tokens() {
        let prepaid = Prepaid::default();
        prepaid.word.store(u64::MAX, Release);
        prepaid.fill(7, 100);
        assert_eq!(prepaid.tokens(0), 7);
    }
}
