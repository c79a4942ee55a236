//! The arithmetic of every algorithm, without a clock and without I/O: state, time and charge in; decision and new
//! state out.
//!
//! A backend needs this module if its store keeps bytes and cannot decide. A backend that decides in another language,
//! such as a Lua script, is tested against this module.
//!
//! ```
//! use std::time::Duration;
//! use tower_dist_ratelimit::arithmetic::Limit;
//! use tower_dist_ratelimit::backend::{Charge, PolicyId};
//! use tower_dist_ratelimit::{Policy, Quota};
//!
//! let policy = Policy::new("mail", Quota::per_second(10).burst(2));
//! let limit = Limit::new(policy.algorithm(), policy.quota())?;
//! let charge = Charge::new(PolicyId::new(0), b"alice", 1);
//!
//! // With a burst of 2, two mails pass at time 0. At 10 mails per second, the third passes after 100 ms.
//! let mut state = limit.unused(0);
//! assert!(state.charge(0, &charge).allowed);
//! assert!(state.charge(0, &charge).allowed);
//! let decision = state.charge(0, &charge);
//! assert_eq!(decision.retry_after, Some(Duration::from_millis(100)));
//!
//! // The bytes hold the state.
//! let bytes = state.to_bytes();
//! let mut state = limit.read(0, &bytes).ok_or("not a state")?;
//! assert!(!state.charge(99_999_999, &charge).allowed);
//! assert!(state.charge(100_000_000, &charge).allowed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Time
//!
//! Times are nanoseconds since an epoch. The backend chooses the epoch, the same one for all writers of a key. A fixed
//! window begins at a multiple of its length since the epoch, unless it is staggered or begins with a request. Times
//! may come in any order: if a clock jumps back, a decision admits at most the tokens that it would admit without the
//! jump. At [`HORIZON`] time stops, so a leaky queue rejects a request whose turn is later.
//!
//! # Bytes
//!
//! A state is one byte for the algorithm and the version of its layout, then the number of words, then the words. The
//! number and the words are unsigned 64-bit integers in LEB128: seven bits per byte, the lowest first. An unused key
//! has no words. A layout that changes gets a new first byte, so a release never misreads the bytes of another one.
//!
//! | first byte | algorithm | words |
//! |---|---|---|
//! | `0x11` | token bucket, leaky bucket | time at which the bucket is full, in units of the clock of the quota in force; that quota's limit, window in ns, and burst; latest time of a write in ns |
//! | `0x12` | leaky queue | the same, for the time at which the queue is empty |
//! | `0x13` | fixed window | one word: number of the window, counted from 1, in the high bits; count in the low bits, which are as many as the leading zeros of `HORIZON / window + 2` as a `u64` |
//! | `0x14` | fixed window from the first request | end of the window in ns, count |
//! | `0x15` | sliding windows of all kinds, with `n` sub-windows | number of the newest sub-window; then `n + 1` counts, with the count of sub-window `i` at index `i mod (n + 1)` |
//! | `0x16` | sliding window log | for each entry, the oldest first: nanoseconds since the previous entry (for the oldest one, since the epoch), tokens. Requests of one nanosecond share an entry |
//!
//! The clock of a quota counts tokens: one token is `2^k` units, and the clock gains `limit * 2^k / window` units per
//! nanosecond, rounded down once per reading. `k` is the largest integer at which the units of [`HORIZON`] stay at or
//! below 2⁶³ and the units of a burst at or below 2⁶¹.
//!
//! For algorithms with windows, the bytes do not hold the length of the window, and several algorithms share a first
//! byte. Include the algorithm and the length in the store's keys, so that a policy with another window starts with
//! unused states.

#[cfg(test)]
pub(crate) mod tests;

use std::{sync::Arc, time::Duration};

use crate::{
    Algorithm, BuildError, Decision, Quota,
    algorithm::{
        self, Adjusted, Arithmetic, Bucket, FirstRequest, FixedWindow, Now, SlidingLog,
        SlidingWindow, Take, Words,
    },
    backend::Charge,
};
pub use crate::{
    algorithm::{MAX_LOG, saturating_nanos},
    quota::HORIZON,
};

/// The arithmetic of one policy: its algorithm under its quota.
///
/// # Cost
///
/// Creating a `Limit` and writing a state to bytes allocate. Reading and charging can allocate, because a state of more
/// than two 64-bit words is on the heap.
#[derive(Clone, Debug)]
pub struct Limit {
    pub(crate) arithmetic: Arc<dyn Arithmetic>,
    /// The first byte of a state: names the layout of its words.
    kind: u8,
    /// The maximum that [`State::expires_after`] returns.
    longest: Duration,
}

impl Limit {
    /// Returns the arithmetic of an algorithm under a quota.
    ///
    /// # Errors
    ///
    /// An invalid quota, a quota that does not fit the algorithm, or a setting of the algorithm that is out of its
    /// bounds.
    pub fn new(algorithm: Algorithm, quota: Quota) -> Result<Self, BuildError> {
        algorithm.check(quota)?;
        Self::with_longest_log(algorithm, quota, MAX_LOG)
    }

    /// Returns the arithmetic of an algorithm whose settings are checked already. `longest_log` is the maximum limit of
    /// a sliding window log. While `longest_log` entries are in its window, new tokens join the last entry.
    pub(crate) fn with_longest_log(
        algorithm: Algorithm,
        quota: Quota,
        longest_log: u64,
    ) -> Result<Self, BuildError> {
        let bucket = |max_wait| Ok(Adjusted::new(quota, Bucket::new(quota, max_wait)?));
        let sliding = |n, whole| SlidingWindow::new(quota, n, whole);
        let (kind, arithmetic): (_, Arc<dyn Arithmetic>) = match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => (0x11, Arc::new(bucket(None)?)),
            Algorithm::LeakyQueue { max_wait } => (0x12, Arc::new(bucket(Some(max_wait))?)),
            Algorithm::FixedWindow { staggered } => {
                (0x13, Arc::new(FixedWindow::new(quota, staggered)?))
            }
            Algorithm::FixedWindowFromFirstRequest => (0x14, Arc::new(FirstRequest::new(quota)?)),
            Algorithm::SlidingWindow => (0x15, Arc::new(sliding(1, false)?)),
            Algorithm::SlidingWindowBuckets { count } => (0x15, Arc::new(sliding(count, false)?)),
            Algorithm::SlidingWindowStrict { count } => (0x15, Arc::new(sliding(count, true)?)),
            Algorithm::SlidingWindowLog => (0x16, Arc::new(SlidingLog::new(quota, longest_log)?)),
        };
        // With windows and logs, all tokens are free again at most two windows after the last charge, unless a clock
        // jumped back. `longest` is this time. Without `longest`, a window that a wrong clock placed in the far future
        // would be kept until then. A bucket or queue can take any time to drain, so it has no bound.
        let longest = match algorithm.has_windows() {
            true => quota.window().saturating_mul(2),
            false => Duration::MAX,
        };
        Ok(Self {
            arithmetic,
            kind,
            longest,
        })
    }

    /// Returns the state of a key without charges.
    ///
    /// `bits` is a 64-bit hash of the key, the same on every machine. It sets when the key's
    /// [staggered windows](crate::Policy::fixed_window_staggered) begin; other algorithms ignore it.
    #[must_use]
    pub fn unused(&self, bits: u64) -> State {
        State {
            limit: self.clone(),
            words: Words::new(),
            bits,
        }
    }

    /// Reads a state from bytes that [`State::to_bytes`] wrote.
    ///
    /// Returns `None` if the bytes do not fit the [layout](crate::arithmetic#bytes) of this algorithm. The caller then
    /// treats the key as [unused](Self::unused).
    ///
    /// `bits` is as in [`unused`](Self::unused).
    #[must_use]
    pub fn read(&self, bits: u64, mut bytes: &[u8]) -> Option<State> {
        let state = self.read_next(bits, &mut bytes)?;
        bytes.is_empty().then_some(state)
    }

    /// Reads a state from the beginning of `bytes`, and advances `bytes` past the state.
    pub(crate) fn read_next(&self, bits: u64, bytes: &mut &[u8]) -> Option<State> {
        let (&kind, mut rest) = bytes.split_first()?;
        if kind != self.kind {
            return None;
        }
        let words = (0..get(&mut rest)?).map(|_| get(&mut rest));
        let words = self.arithmetic.decode(words.collect::<Option<_>>()?)?;
        *bytes = rest;
        Some(State {
            words,
            ..self.unused(bits)
        })
    }
}

/// The state of one key under one [`Limit`].
#[derive(Clone, Debug)]
pub struct State {
    limit: Limit,
    words: Words,
    bits: u64,
}

impl State {
    /// Decides on a charge at the given time, without taking tokens.
    ///
    /// `nanos` is the time in nanoseconds since the backend's epoch. The charge's policy and key are not read.
    #[must_use]
    pub fn decide(&self, nanos: u64, charge: &Charge<'_>) -> Decision {
        self.look(nanos, &Take::of(charge))
    }

    /// Decides on a charge at the given time, and takes the granted tokens.
    ///
    /// A rejected charge takes no tokens, but can put its [quota](Charge::quota) in force.
    pub fn charge(&mut self, nanos: u64, charge: &Charge<'_>) -> Decision {
        let (now, take) = (self.when(nanos), Take::of(charge));
        algorithm::charge(&*self.limit.arithmetic, &mut self.words, now, &take)
    }

    /// Corrects a charge: takes `delta` more tokens even if fewer are free. If `delta` is negative, returns `-delta`
    /// tokens instead.
    ///
    /// A refund returns at most the used tokens. An extra charge takes at most the tokens that the algorithm can still
    /// count. This method does not read the charge's cost, so the caller has to limit a refund to the cost. Returns
    /// whether the number of used tokens changed.
    pub fn settle(&mut self, nanos: u64, charge: &Charge<'_>, delta: i64) -> bool {
        let (now, take) = (self.when(nanos), Take::of(charge));
        let arithmetic = &self.limit.arithmetic;
        arithmetic.settle(&mut self.words, now, &take, delta)
    }

    /// Returns how long the state has to be kept. If the writers' clocks agree and do not jump, the key has no used
    /// tokens after that time.
    #[must_use]
    pub fn expires_after(&self, nanos: u64) -> Duration {
        let ttl = self.limit.arithmetic.ttl(&self.words, self.when(nanos));
        ttl.min(self.limit.longest)
    }

    /// Returns the state as bytes, in the [layout](crate::arithmetic#bytes) of its algorithm.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        self.write(&mut out);
        out
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let words = self.limit.arithmetic.encode(&self.words);
        out.push(self.limit.kind);
        put(out, words.len() as u64);
        for word in words {
            put(out, word);
        }
    }

    fn look(&self, nanos: u64, take: &Take<'_>) -> Decision {
        let arithmetic = &self.limit.arithmetic;
        arithmetic.decide(&self.words, self.when(nanos), take)
    }

    fn when(&self, nanos: u64) -> Now {
        let key = self.bits;
        Now { nanos, key }
    }
}

/// Makes all charges or none, each to the state with the same index, and writes the decisions to `out`.
///
/// Returns whether all charges are allowed. If one is rejected, no tokens are taken. The decision of a charge that
/// would pass alone then stays allowed, but grants nothing. Even if charges are rejected, each charge with a cost above
/// zero can change the quota under which the key's used tokens drain: see [`Charge::quota`].
///
/// The three slices must have the same length.
///
/// ```
/// use tower_dist_ratelimit::arithmetic::{Limit, charge_all};
/// use tower_dist_ratelimit::backend::{Charge, PolicyId};
/// use tower_dist_ratelimit::{Algorithm, Decision, Quota};
///
/// let one = Limit::new(Algorithm::TokenBucket, Quota::per_hour(1))?;
/// let ten = Limit::new(Algorithm::TokenBucket, Quota::per_hour(10))?;
/// let mut states = [one.unused(0), ten.unused(0)];
/// let charges = [0, 1].map(|id| Charge::new(PolicyId::new(id), b"alice", 1));
/// let mut out = [Decision::default(); 2];
/// assert!(charge_all(&mut states, 0, &charges, &mut out));
/// // The first limit rejects the second request, so the second limit keeps its nine tokens.
/// assert!(!charge_all(&mut states, 0, &charges, &mut out));
/// assert_eq!((out[1].allowed, out[1].granted, out[1].remaining), (true, 0, 9));
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
pub fn charge_all(
    states: &mut [State],
    nanos: u64,
    charges: &[Charge<'_>],
    out: &mut [Decision],
) -> bool {
    for ((state, charge), out) in states.iter().zip(charges).zip(&mut *out) {
        *out = state.decide(nanos, charge);
    }
    let allowed = out.iter().all(|out| out.allowed);
    for ((state, charge), out) in states.iter_mut().zip(charges).zip(out) {
        let take = Take::of(charge);
        if allowed {
            *out = state.charge(nanos, charge);
            continue;
        }
        if out.allowed {
            *out = state.look(nanos, &take.look());
        }
        if charge.cost > 0 {
            let now = state.when(nanos);
            let arithmetic = &state.limit.arithmetic;
            arithmetic.adopt(&mut state.words, now, &take);
        }
    }
    allowed
}

/// Decides on a charge to a fixed window whose tokens the store itself counts, for example in a server's counter.
///
/// Before the charge, `count` of the present window's `limit` tokens are taken. The window ends after `left`. The
/// charge's quota is not read.
///
/// ```
/// use std::time::Duration;
/// use tower_dist_ratelimit::arithmetic::decide_count;
/// use tower_dist_ratelimit::backend::{Charge, PolicyId};
///
/// let (left, charge) = (Duration::from_secs(20), Charge::new(PolicyId::new(0), b"alice", 2));
/// assert_eq!(decide_count(10, 7, left, &charge).remaining, 1);
/// assert_eq!(decide_count(10, 9, left, &charge).retry_after, Some(left));
/// ```
#[must_use]
pub fn decide_count(limit: u64, count: u64, left: Duration, charge: &Charge<'_>) -> Decision {
    algorithm::decide_count(limit, count, left, &Take::of(charge))
}

/// Appends a number in LEB128.
fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Reads a number in LEB128. Returns `None` if the bytes end before the number does, or if the number has more than ten
/// bytes or 64 bits.
fn get(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, others) = rest.split_first()?;
        *rest = others;
        let bits = u64::from(byte & 0x7F);
        let shifted = bits << shift;
        if shifted >> shift != bits {
            return None;
        }
        number |= shifted;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
