use std::time::Duration;

use tower_dist_ratelimit::{Algorithm, BuildError, Policy, Quota, arithmetic::MAX_LOG};

use super::{
    key::PolicyKeys,
    rate::{MOST_USED, Rate, as_micros, micros},
    source::{self, fill},
};

/// The largest count of a fixed or sliding window, debts included. It has 14 digits.
const MAX_COUNT: u64 = 99_999_999_999_999;

/// The largest number of tokens in a log, debts included.
const LONGEST_LOG: u64 = 2 * MAX_LOG;

/// Minimum window of a policy with a fixed window, a sliding window or a log.
const SHORTEST: Duration = Duration::from_millis(1);

/// A policy, translated for the scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CompiledPolicy {
    pub(super) keys: PolicyKeys,
    pub(super) quota: Quota,
    pub(super) dynamic: bool,
    pub(super) counts: CountUnit,
    /// The policy's part of a script, in Lua.
    pub(super) lua: String,
    /// The shorter script for calls that charge only this policy, if it is a token or leaky bucket without dynamic
    /// quotas.
    pub(super) single: Option<SingleScript>,
}

/// The script for calls that charge only one policy: a token or leaky bucket without dynamic quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SingleScript {
    /// The script without its first lines, which read the server's clock.
    pub(super) lua: String,
    pub(super) rate: Rate,
}

/// The unit in which an algorithm counts a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountUnit {
    /// Units of a [`Rate`]. `max_wait` is the longest delay of a leaky queue in microseconds, and 0 for a bucket.
    Units { max_wait: u64 },
    /// Tokens. A limit is at most this number.
    Tokens(u64),
}

impl CompiledPolicy {
    /// # Errors
    ///
    /// A quota or algorithm that the scripts cannot count exactly or do not support.
    pub(super) fn new(prefix: &str, policy: &Policy) -> Result<Self, BuildError> {
        Self::checked(prefix, policy).map_err(|error| error.in_policy(policy.name()))
    }

    fn checked(prefix: &str, policy: &Policy) -> Result<Self, BuildError> {
        let part = part(policy)?;
        Ok(Self {
            keys: PolicyKeys::new(prefix, &part.version, policy.name(), policy.colocated()),
            quota: policy.quota(),
            dynamic: policy.has_dynamic_quotas(),
            counts: part.counts,
            lua: part.lua,
            single: part.single,
        })
    }

    /// Returns the limit of `quota`, or of the policy's own quota if `quota` is `None`. If the algorithm counts tokens,
    /// the limit is capped, and is 0 if the burst is 0.
    pub(super) fn limit(&self, quota: Option<Quota>) -> u64 {
        let quota = quota.unwrap_or(self.quota);
        match self.counts {
            CountUnit::Units { .. } => quota.limit(),
            CountUnit::Tokens(most) => quota.allowed().min(most),
        }
    }
}

/// An algorithm's part of a script.
struct ScriptPart {
    /// The name of the stored values' layout. The name is a part of the keys.
    version: String,
    counts: CountUnit,
    lua: String,
    single: Option<SingleScript>,
}

type ScriptPartResult = Result<ScriptPart, BuildError>;

fn part(policy: &Policy) -> ScriptPartResult {
    match policy.algorithm() {
        Algorithm::TokenBucket => paced(policy, "b", source::TOKEN_BUCKET, 0),
        Algorithm::LeakyBucket => paced(policy, "m", source::TOKEN_BUCKET, 0),
        Algorithm::LeakyQueue { max_wait } => {
            let rate = Rate::new(policy.quota())?;
            let wait = as_micros(max_wait);
            let most = (MOST_USED - rate.burst) / rate.rate;
            if wait > most {
                let value = format!("{max_wait:?}");
                let most = Duration::from_micros(most);
                let bound = format!("at most {most:?} with this quota on Redis");
                return Err(BuildError::new("max_wait", value, bound));
            }
            paced(policy, "q", source::LEAKY_QUEUE, wait)
        }
        Algorithm::FixedWindow { staggered } => {
            // The first 16 bits of the hash of the caller's key select the offset of a staggered window. The hash is in
            // braces, or at the end of a colocated policy's key. A policy's name can look like a hash, so each pattern
            // matches only at the hash's place.
            let offset = match (staggered, policy.colocated()) {
                (false, _) => "0",
                (true, None) => "floor(tonumber(match(key, '{(%x%x%x%x)'), 16) / 65536 * $WINDOW)",
                (true, Some(_)) => {
                    "floor(tonumber(match(key, ':(%x%x%x%x)%x*$'), 16) / 65536 * $WINDOW)"
                }
            };
            let version = if staggered { "p2" } else { "f2" };
            let fresh = format!("now + $WINDOW - (now + {offset}) % $WINDOW");
            window(policy, version, &fresh, "fresh - 1", "fresh + $WINDOW")
        }
        Algorithm::FixedWindowFromFirstRequest => {
            window(policy, "h2", "now + $WINDOW", "now", "fresh")
        }
        Algorithm::SlidingWindow => sliding(policy, "t1", 1, false),
        Algorithm::SlidingWindowBuckets { count } => {
            sliding(policy, &format!("s{count}"), count, false)
        }
        Algorithm::SlidingWindowStrict { count } => {
            sliding(policy, &format!("v{count}"), count, true)
        }
        Algorithm::SlidingWindowLog => {
            let lua = source::SLIDING_LOG.replace("$MAX_LOG", &LONGEST_LOG.to_string());
            counter_up_to(MAX_LOG, policy, "l1".to_owned(), &lua)
        }
        other => Err(BuildError::new(
            "algorithm",
            format_args!("{other:?}"),
            "one that this version of the Redis backend supports",
        )),
    }
}

fn paced(policy: &Policy, version: &str, algorithm: &str, max_wait: u64) -> ScriptPartResult {
    let rate = Rate::new(policy.quota())?;
    let (rate, layout, state, quota) = match policy.has_dynamic_quotas() {
        true => (rate.finer(max_wait), "u2", source::USED, QUOTA_OF_UNITS),
        false => (rate, "3", source::FULL_AT, FIXED_QUOTA),
    };
    let lua = [state, source::DRAINED, algorithm, quota].concat();
    let numbers = [
        ("MOST_USED", MOST_USED),
        ("RATE", rate.rate),
        ("TOKEN", rate.token),
        ("BURST", rate.burst),
        ("MAX_WAIT", max_wait),
    ];
    let is_short = algorithm == source::TOKEN_BUCKET && !policy.has_dynamic_quotas();
    Ok(ScriptPart {
        version: format!("{version}{layout}"),
        counts: CountUnit::Units { max_wait },
        lua: fill(&lua, &numbers),
        single: is_short.then(|| SingleScript {
            lua: fill(source::BUCKET_ALONE, &numbers),
            rate,
        }),
    })
}

/// The part of a script that reads a request's dynamic quota.
const QUOTA_OF_UNITS: &str = "
  local function quota(text)
    local rate, token, burst = match(text or '', '^(%d+) (%d+) (%d+)$')
    RATE, TOKEN, BURST = tonumber(rate) or $RATE, tonumber(token) or $TOKEN, tonumber(burst) or $BURST
  end
";
const QUOTA_OF_TOKENS: &str =
    "\n  local adopt\n  local function quota(text) LIMIT = tonumber(text) or $LIMIT end\n";
const FIXED_QUOTA: &str = "\n  local quota, adopt\n";

/// Returns the script part of a fixed window. `fresh`, `after` and `latest` are Lua expressions of times. A request
/// without a stored window gets a window that ends at `fresh`. A stored window is used only if it ends later than
/// `after`. If it ends later than `latest`, because the clock has jumped back, it moves to end there.
fn window(
    policy: &Policy,
    version: &str,
    fresh: &str,
    after: &str,
    latest: &str,
) -> ScriptPartResult {
    let lua = [source::WINDOW, source::COUNTER].concat();
    let lua = lua.replace("$FRESH", fresh).replace("$AFTER", after);
    let lua = lua.replace("$LATEST", latest);
    counter(policy, version, &lua)
}

fn sliding(policy: &Policy, version: &str, count: u32, whole: bool) -> ScriptPartResult {
    // Rounded up to whole microseconds if the count does not divide the window.
    let length = as_micros(policy.quota().window()).div_ceil(u64::from(count));
    let numbers = [("COUNT", count.into()), ("LENGTH", length)];
    let lua = fill(source::SLIDING_WINDOW, &numbers);
    counter(policy, version, &lua.replace("$WHOLE", &whole.to_string()))
}

/// Returns the script part of a fixed or sliding window. Appends the window's length to `version`, the name of the
/// stored layout, because a count is meaningless for a window of another length.
fn counter(policy: &Policy, version: &str, lua: &str) -> ScriptPartResult {
    let micros = as_micros(policy.quota().window());
    let version = match micros.is_multiple_of(1_000_000) {
        true => format!("{version}w{}s", micros / 1_000_000),
        false => format!("{version}w{micros}"),
    };
    counter_up_to(MAX_COUNT, policy, version, lua)
}

fn counter_up_to(most: u64, policy: &Policy, version: String, lua: &str) -> ScriptPartResult {
    let quota = policy.quota();
    quota.check_limit(most)?;
    let window = micros("window", quota.window())?;
    if quota.window() < SHORTEST {
        let value = format!("{:?}", quota.window());
        let bound = format!("at least {SHORTEST:?} on Redis");
        return Err(BuildError::new("window", value, bound));
    }
    let change = match policy.has_dynamic_quotas() {
        true => QUOTA_OF_TOKENS,
        false => FIXED_QUOTA,
    };
    let numbers = [
        ("LIMIT", quota.limit()),
        ("WINDOW", window),
        ("MAX_COUNT", MAX_COUNT),
    ];
    Ok(ScriptPart {
        version,
        counts: CountUnit::Tokens(most),
        lua: fill(&[lua, change].concat(), &numbers),
        single: None,
    })
}
