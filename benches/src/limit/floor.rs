//! The parts of a decision alone: read the clock, hash the key, find the hash in a line of four, charge the key's state
//! in one atomic step, and compute the numbers of the decision.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::Duration;

use siphasher::sip::SipHasher13;
use tokio::time::Instant;
use tower_dist_ratelimit::Decision;

use super::PER_SECOND;

pub(super) const FLOOR: &str = "floor";
pub(super) const CLOCK: &str = "clock";

/// Keys in a cache line.
const WAYS: usize = 4;
/// Slots per key, as in `Memory`.
const SLOTS: usize = 2;

const SECOND: u64 = 1_000_000_000;
const CENTURY: u128 = 100 * 366 * 86_400 * SECOND as u128;

/// A GCRA that counts in parts of a token, so that rounding errors do not add up. Its table is as large as `Memory`'s,
/// with the same clock and the same hash function. In a full line, a new key takes the place of another.
pub(crate) struct Floor {
    hasher: SipHasher13,
    created: Instant,
    limit: u64,
    /// A token is `1 << token_bits` parts.
    token_bits: u32,
    parts_per_nano: Ratio,
    nanos_per_part: Ratio,
    lines: Vec<Line>,
}

/// The hashes of four keys, 0 if a place is free, and their states.
#[derive(Default)]
#[repr(align(64))]
struct Line {
    keys: [AtomicU64; WAYS],
    states: [AtomicU64; WAYS],
}

/// The fraction `num / den`: `whole`, and `part` of 2⁶⁴.
struct Ratio {
    whole: u64,
    part: u64,
    num: u64,
    den: u64,
}

impl Floor {
    /// A limit that no subject can exhaust.
    pub(crate) fn plenty(keys: u32) -> Self {
        Self::new(keys, PER_SECOND.into(), SECOND)
    }

    /// One request per hour.
    pub(crate) fn one_per_hour(keys: u32) -> Self {
        Self::new(keys, 1, 3600 * SECOND)
    }

    /// A limit per window, in nanoseconds. The burst is the limit.
    fn new(keys: u32, limit: u64, window: u64) -> Self {
        // In a century, the clock counts at most 2⁶² parts.
        let most = (u128::from(window) << 62) / CENTURY / u128::from(limit);
        let token_bits = most.ilog2();
        let slots = SLOTS * usize::try_from(keys).expect("at least 32 bits");
        let random = RandomState::new();
        Self {
            hasher: SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1)),
            created: Instant::now(),
            limit,
            token_bits,
            parts_per_nano: Ratio::new(limit << token_bits, window),
            nanos_per_part: Ratio::new(window, limit << token_bits),
            lines: (0..slots.div_ceil(WAYS)).map(|_| Line::default()).collect(),
        }
    }

    /// Charges one token to the key.
    pub(crate) fn charge<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Decision {
        self.charge_by(key, || {
            let nanos = self.created.elapsed().as_nanos();
            u64::try_from(nanos).expect("a bench takes less than 584 years")
        })
    }

    /// Like [`charge`](Self::charge), with another clock. `now` returns the nanoseconds since a fixed time.
    #[inline]
    pub(super) fn charge_by<K: AsRef<[u8]> + ?Sized>(
        &self,
        key: &K,
        now: impl FnOnce() -> u64,
    ) -> Decision {
        let hash = self.hasher.hash(key.as_ref()).max(1);
        let number = (u128::from(hash) * self.lines.len() as u128) >> 64;
        let line = &self.lines[usize::try_from(number).expect("an index of the table")];
        let at = now();
        let now = self.parts_per_nano.floor(at);
        let place = line.place(hash);
        let (owner, state) = (&line.keys[place], &line.states[place]);
        let (token, burst) = (1 << self.token_bits, self.limit << self.token_bits);
        let nanos = |parts| Duration::from_nanos(self.nanos_per_part.ceil(now + parts) - at);
        let mut seen = state.load(Acquire);
        while owner.load(Acquire) == hash {
            let next = seen.max(now) + token;
            let used = next - now;
            let Some(free) = burst.checked_sub(used) else {
                let (wait, reset) = (nanos(used - burst), nanos(used - token));
                return Decision::reject(self.limit, 0, Some(wait), reset);
            };
            match state.compare_exchange(seen, next, AcqRel, Acquire) {
                Ok(_) if owner.load(Acquire) == hash => {
                    let remaining = free >> self.token_bits;
                    return Decision::allow(1, self.limit, remaining, nanos(used));
                }
                Ok(_) => break,
                Err(other) => seen = other,
            }
        }
        panic!("another key has taken the place")
    }
}

impl Line {
    #[inline]
    fn place(&self, hash: u64) -> usize {
        let place = |wanted| self.keys.iter().position(|key| key.load(Acquire) == wanted);
        place(hash).unwrap_or_else(|| {
            let free = place(0).unwrap_or(WAYS - 1);
            self.states[free].store(0, Release);
            self.keys[free].store(hash, Release);
            free
        })
    }
}

impl Ratio {
    fn new(num: u64, den: u64) -> Self {
        let part = (u128::from(num % den) << 64) / u128::from(den);
        Self {
            whole: num / den,
            part: u64::try_from(part).expect("a fraction"),
            num,
            den,
        }
    }

    /// `x` times the ratio, rounded down exactly.
    #[inline]
    fn floor(&self, x: u64) -> u64 {
        let (guess, missing) = self.guess(x);
        guess + u64::from(missing >= self.den)
    }

    /// `x` times the ratio, rounded up exactly.
    #[inline]
    fn ceil(&self, x: u64) -> u64 {
        let (guess, missing) = self.guess(x);
        guess + u64::from(missing > 0) + u64::from(missing > self.den)
    }

    /// The product with `whole` and `part`, and the numerator that is missing: less than twice `den`.
    #[inline]
    fn guess(&self, x: u64) -> (u64, u64) {
        let part = (u128::from(x) * u128::from(self.part)) >> 64;
        let guess = x * self.whole + u64::try_from(part).expect("below x");
        let missing = x
            .wrapping_mul(self.num)
            .wrapping_sub(guess.wrapping_mul(self.den));
        (guess, missing)
    }
}
