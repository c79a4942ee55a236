use std::time::Duration;

use smallvec::SmallVec;

use super::{clock::Time, key::Keys, request::Ttl};
use crate::{
    Algorithm, BuildError, Decision, Policy, Quota,
    algorithm::{
        Adjusted, Arithmetic, Ask, Counter, FirstHit, FixedWindow, LeakyQueue, Restored,
        SlidingWindow, TokenBucket, Words,
    },
};

/// How far the clocks of a fleet may be apart before a window can be forgotten while some still count in it.
const SKEW: Duration = Duration::from_secs(60);

/// The server's clock ticks once a second; and what is written takes its way.
const SLACK: u64 = 2;

/// The most that a counter counts in a window. Reservations and debts come on top; the server's counters wrap at 2⁶⁴.
pub(super) const MOST: u64 = 1 << 48;

/// The longest window whose end can be told to the server in seconds from its beginning.
const LONGEST_FIRST_HIT: Duration = Duration::from_secs(30 * 86_400);

const SECOND: u64 = 1_000_000_000;

/// One policy's arithmetic, on states as they are kept in a value.
pub(super) trait Slot: Send + Sync {
    fn decide(&self, words: &Words, at: At, ask: &Ask<'_>, out: &mut Decision);

    fn take(&self, words: &mut Words, at: At, ask: &Ask<'_>, tokens: u64);

    /// Whether anything has changed.
    fn settle(&self, words: &mut Words, at: At, ask: &Ask<'_>, delta: i64) -> bool;

    /// Whether these words can be counted with.
    fn holds(&self, words: &Words) -> bool;
}

/// A time, and 64 bits of the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) nanos: u64,
    pub(super) key: u64,
}

impl<A: Restored> Slot for A {
    fn decide(&self, words: &Words, at: At, ask: &Ask<'_>, out: &mut Decision) {
        let state = self.restore(words).unwrap_or_default();
        Arithmetic::decide(self, &state, self.at(at.nanos, at.key), ask, out);
    }

    fn take(&self, words: &mut Words, at: At, ask: &Ask<'_>, tokens: u64) {
        let mut state = self.restore(words).unwrap_or_default();
        Arithmetic::take(self, &mut state, self.at(at.nanos, at.key), ask, tokens);
        *words = Self::words(&state);
    }

    fn settle(&self, words: &mut Words, at: At, ask: &Ask<'_>, delta: i64) -> bool {
        let mut state = self.restore(words).unwrap_or_default();
        let now = self.at(at.nanos, at.key);
        let changed = Arithmetic::settle(self, &mut state, now, ask, delta);
        if changed {
            *words = Self::words(&state);
        }
        changed
    }

    fn holds(&self, words: &Words) -> bool {
        self.restore(words).is_some()
    }
}

/// Policies that are decided together, whose states for one key are one item.
pub(super) struct Set {
    pub(super) keys: Keys,
    pub(super) slots: Vec<Box<dyn Slot>>,
    /// How long each has anything to say at most.
    spans: Vec<Duration>,
    /// How much longer than anything counts it is kept, in seconds.
    slack: u64,
}

impl Set {
    /// # Errors
    ///
    /// A policy that cannot be kept.
    pub(super) fn new(prefix: &str, policies: &[Policy]) -> Result<Self, BuildError> {
        let slots = policies
            .iter()
            .map(|policy| slot(policy).map_err(|error| error.in_policy(policy.name())))
            .collect::<Result<_, _>>()?;
        let layouts: SmallVec<[String; 4]> = policies.iter().map(layout).collect();
        let keys = match policies {
            [policy] => Keys::new(prefix, &layouts[0], policy.name()),
            policies => {
                let parts = policies.iter().zip(&layouts);
                // With a space, so that it is hashed.
                let name: String = parts
                    .map(|(policy, layout)| {
                        format!("{} {} {layout} ", policy.name().len(), policy.name())
                    })
                    .collect();
                Keys::new(prefix, "s1", &name)
            }
        };
        let slack = policies.iter().map(slack).max().unwrap_or_default();
        let spans = policies.iter().map(span).collect();
        Ok(Self {
            keys,
            slots,
            spans,
            slack,
        })
    }

    /// How long an item has something to say, as the look at each of its policies tells.
    pub(super) fn ttl(&self, longest: Duration, time: Time) -> Ttl {
        let seconds = longest.as_secs().saturating_add(1 + SLACK + self.slack);
        Ttl::seconds(seconds, time.unix)
    }
}

/// What a policy's states mean: those of buckets whatever the quota is, those of windows with windows of one length. Whoever
/// has used up a long one would else have to wait for its end when it has become a short one.
fn layout(policy: &Policy) -> String {
    let window = policy.quota().window().as_nanos();
    match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => "b1".to_owned(),
        Algorithm::LeakyQueue { .. } => "q1".to_owned(),
        Algorithm::FirstHit => format!("h1.{window}"),
        Algorithm::FixedWindow { phase_per_key } => {
            format!("{}1.{window}", if phase_per_key { 'p' } else { 'f' })
        }
        Algorithm::SubWindows { count } => format!("w1.{window}.{count}"),
        Algorithm::WholeSubWindows { count } => format!("v1.{window}.{count}"),
        Algorithm::TwoWindows | Algorithm::SlidingLog => format!("w1.{window}.1"),
    }
}

/// Windows are forgotten when they have been over for a while by the clock of whoever wrote last; buckets when they are
/// full, which is after the same time by all clocks.
fn slack(policy: &Policy) -> u64 {
    match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue { .. } => 0,
        _ => policy.quota().window().min(SKEW).as_secs(),
    }
}

/// Windows have nothing to say when they have been over for as long as they are. Whoever finds one that begins in a far
/// future, as somebody's clock was wrong, does not keep it until then. Buckets drain as slowly as the lowest quota says.
fn span(policy: &Policy) -> Duration {
    match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue { .. } => {
            Duration::MAX
        }
        _ => policy.quota().window().saturating_mul(2),
    }
}

fn slot(policy: &Policy) -> Result<Box<dyn Slot>, BuildError> {
    let quota = policy.quota();
    Ok(match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            Box::new(Adjusted::new(quota, TokenBucket::new(quota)?))
        }
        Algorithm::LeakyQueue { max_wait } => {
            Box::new(Adjusted::new(quota, LeakyQueue::new(quota, max_wait)?))
        }
        Algorithm::FixedWindow { phase_per_key } => {
            Box::new(FixedWindow::new(quota, phase_per_key)?)
        }
        Algorithm::FirstHit => Box::new(FirstHit::new(quota)?),
        Algorithm::TwoWindows => Box::new(SlidingWindow::interpolated(quota, 1)?),
        Algorithm::SubWindows { count } => Box::new(SlidingWindow::interpolated(quota, count)?),
        Algorithm::WholeSubWindows { count } => Box::new(SlidingWindow::whole(quota, count)?),
        Algorithm::SlidingLog => {
            let bound = "another one on Memcached, which keeps no lists; whole_sub_windows never admit more than the limit, either";
            return Err(BuildError::new("algorithm", "sliding_log", bound));
        }
    })
}

/// A policy that stands alone and is counted by the server, each window in an item of its own.
pub(super) struct Counted {
    pub(super) keys: Keys,
    quota: Quota,
    windows: Windows,
}

/// The windows of a policy, as counters.
enum Windows {
    /// One item, that ends when the window does. In seconds.
    FirstHit {
        arithmetic: FirstHit,
        seconds: u64,
    },
    Fixed(FixedWindow),
    Sliding(SlidingWindow),
}

/// What has been counted, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts<'a> {
    /// Of the present window, without what is asked now.
    pub(super) present: u64,
    /// Of those before it, the newest first.
    pub(super) older: &'a [u64],
    /// The present window's.
    pub(super) number: Option<u64>,
    /// Of the present window's item, as the server says, in seconds.
    pub(super) ttl: Option<i64>,
}

impl Counted {
    /// None if it is not windows that counters can count.
    ///
    /// # Errors
    ///
    /// A quota that cannot be counted.
    pub(super) fn new(prefix: &str, policy: &Policy) -> Result<Option<Self>, BuildError> {
        let quota = policy.quota();
        let sliding = |windows: SlidingWindow| Some(Windows::Sliding(windows));
        let windows = match policy.algorithm() {
            Algorithm::FirstHit => {
                let window = quota.window();
                let seconds = window.as_secs();
                // By the server's clock, which has no parts of seconds; shorter ones could not be told from the next.
                let fits = window.subsec_nanos() == 0 && seconds >= 2 && window < LONGEST_FIRST_HIT;
                let arithmetic = FirstHit::new(quota)?;
                fits.then_some(Windows::FirstHit {
                    arithmetic,
                    seconds,
                })
            }
            Algorithm::FixedWindow { phase_per_key } => {
                Some(Windows::Fixed(FixedWindow::new(quota, phase_per_key)?))
            }
            Algorithm::TwoWindows => sliding(SlidingWindow::interpolated(quota, 1)?),
            Algorithm::SubWindows { count } => sliding(SlidingWindow::interpolated(quota, count)?),
            Algorithm::WholeSubWindows { count } => sliding(SlidingWindow::whole(quota, count)?),
            _ => None,
        };
        let Some(windows) = windows else {
            return Ok(None);
        };
        if quota.limit() > MOST {
            let bound = format_args!("at most {MOST} with windows on Memcached");
            return Err(BuildError::new("limit", quota.limit(), bound));
        }
        Ok(Some(Self {
            keys: Keys::new(prefix, &layout(policy).to_uppercase(), policy.name()),
            quota,
            windows,
        }))
    }

    /// The limit that holds by this quota.
    pub(super) fn limit(&self, quota: Option<Quota>) -> u64 {
        quota.unwrap_or(self.quota).limit().min(MOST)
    }

    /// How many windows before the present one count.
    pub(super) fn older(&self) -> u64 {
        match &self.windows {
            Windows::Sliding(windows) => windows.older(),
            _ => 0,
        }
    }

    /// The number of the present window, if windows have numbers.
    pub(super) fn number(&self, at: At) -> Option<u64> {
        match &self.windows {
            Windows::FirstHit { .. } => None,
            Windows::Fixed(window) => Some(window.number(window.at(at.nanos, at.key))),
            Windows::Sliding(windows) => Some(windows.at(at.nanos, at.key) / windows.length()),
        }
    }

    /// How long a window counts from its first request on, and is kept.
    pub(super) fn ttl(&self, time: Time) -> Ttl {
        let window = self.quota.window();
        let seconds = match &self.windows {
            // One more, so that it is not shorter when it begins just before a tick.
            Windows::FirstHit { seconds, .. } => seconds + 1,
            _ => {
                let span = window.as_secs().saturating_add(1);
                let span = match self.older() {
                    0 => span,
                    older => span.saturating_add(span.div_ceil(older)),
                };
                span.saturating_add(window.min(SKEW).as_secs() + SLACK)
            }
        };
        Ttl::seconds(seconds, time.unix)
    }

    /// The whole window that a first request begins, if its end is the server's affair.
    pub(super) fn first_hit(&self) -> Option<Duration> {
        match &self.windows {
            Windows::FirstHit { seconds, .. } => Some(Duration::from_secs(*seconds)),
            _ => None,
        }
    }

    /// Whether a window that the server keeps for so long, in seconds, ends when one of ours can. What somebody else has written
    /// there may stay for ever.
    pub(super) fn ends(&self, ttl: Option<i64>) -> bool {
        let Windows::FirstHit { seconds, .. } = self.windows else {
            return true;
        };
        let ttl = ttl.and_then(|ttl| u64::try_from(ttl).ok());
        ttl.is_some_and(|ttl| ttl <= seconds + 1)
    }

    pub(super) fn decide(&self, counts: Counts<'_>, at: At, ask: &Ask<'_>, out: &mut Decision) {
        match &self.windows {
            Windows::Fixed(window) => {
                let state = window.counted(counts.number.unwrap_or(0), counts.present);
                Arithmetic::decide(window, &state, window.at(at.nanos, at.key), ask, out);
            }
            Windows::Sliding(windows) => {
                let mut all: SmallVec<[u64; 8]> = SmallVec::new();
                all.push(counts.present);
                all.extend_from_slice(counts.older);
                let ring = windows.counted(counts.number.unwrap_or(0), &all);
                Arithmetic::decide(windows, &ring, windows.at(at.nanos, at.key), ask, out);
            }
            Windows::FirstHit { arithmetic, .. } => {
                let seconds = counts.ttl.and_then(|ttl| u64::try_from(ttl).ok());
                let left = seconds.map(|seconds| seconds.saturating_mul(SECOND));
                let end = at.nanos.saturating_add(left.unwrap_or(0));
                let state = Counter::until(end, counts.present);
                let now = Arithmetic::at(arithmetic, at.nanos, at.key);
                Arithmetic::decide(arithmetic, &state, now, ask, out);
                // The server says when the window ends, also of one that begins now.
                if let Some(left) = left.map(Duration::from_nanos) {
                    if !out.reset_after.is_zero() {
                        out.reset_after = left;
                    }
                    if !out.allowed && out.retry_after.is_some() {
                        out.retry_after = Some(left);
                    }
                }
            }
        }
    }
}

/// The longest of what these policies' looks say, each by its own quota.
pub(super) fn longest(set: &Set, states: &[Words], at: At, quota: Option<Quota>) -> Duration {
    let slots = set.slots.iter().zip(&set.spans);
    let looks = slots.zip(states).map(|((slot, span), words)| {
        let mut longest = Duration::ZERO;
        for quota in [None, quota.filter(|quota| quota.limit() > 0)] {
            let ask = Ask {
                cost: 0,
                want: 0,
                quota: quota.as_ref(),
            };
            let mut out = Decision::refuse(0, 0, None, Duration::ZERO);
            slot.decide(words, at, &ask, &mut out);
            longest = longest.max(out.reset_after);
        }
        longest.min(*span)
    });
    looks.max().unwrap_or_default()
}
