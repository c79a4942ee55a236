use std::time::Duration;

use tower_dist_ratelimit::{Algorithm, BuildError, Policy, Quota, arithmetic::MAX_LOG};

use super::{
    key::Keys,
    rate::{MOST_USED, Rate, as_micros, micros},
    source::{self, fill},
};

/// The most that a counter counts, debts included: what Lua writes in digits.
const MAX_COUNT: u64 = 99_999_999_999_999;

/// The longest log, debts included.
const LONGEST_LOG: u64 = 2 * MAX_LOG;

/// The shortest window of a counter; keys expire in milliseconds.
const SHORTEST: Duration = Duration::from_millis(1);

/// One policy as Redis knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) keys: Keys,
    pub(super) quota: Quota,
    pub(super) dynamic: bool,
    pub(super) counts: Counts,
    /// Its part of a script.
    pub(super) lua: String,
    /// How it is decided alone, if there is a shorter way.
    pub(super) alone: Option<Alone>,
}

/// A bucket that is decided alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alone {
    /// The whole of a script, without the clock.
    pub(super) lua: String,
    pub(super) rate: Rate,
}

/// The unit in which an algorithm counts a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    /// Units of a pace. A queue holds `max_wait` microseconds of them.
    Units { max_wait: u64 },
    /// Tokens, up to this number.
    Tokens(u64),
}

impl Rule {
    /// # Errors
    ///
    /// A quota or a number of the algorithm that cannot be counted exactly there.
    pub(super) fn new(prefix: &str, policy: &Policy) -> Result<Self, BuildError> {
        Self::checked(prefix, policy).map_err(|error| error.in_policy(policy.name()))
    }

    fn checked(prefix: &str, policy: &Policy) -> Result<Self, BuildError> {
        let (quota, dynamic) = (policy.quota(), policy.has_dynamic_quotas());
        let part = part(
            policy.algorithm(),
            quota,
            dynamic,
            policy.colocated().is_some(),
        )?;
        Ok(Self {
            keys: Keys::new(prefix, &part.version, policy.name(), policy.colocated()),
            quota,
            dynamic,
            counts: part.counts,
            lua: part.lua,
            alone: part.alone,
        })
    }

    /// The limit that holds by this quota.
    pub(super) fn limit(&self, quota: Option<Quota>) -> u64 {
        let quota = quota.unwrap_or(self.quota);
        match self.counts {
            Counts::Units { .. } => quota.limit(),
            Counts::Tokens(most) => quota.allowed().min(most),
        }
    }
}

/// An algorithm's part of a script.
struct Part {
    /// Of the layout of its keys.
    version: String,
    counts: Counts,
    lua: String,
    alone: Option<Alone>,
}

fn part(
    algorithm: Algorithm,
    quota: Quota,
    dynamic: bool,
    colocated: bool,
) -> Result<Part, BuildError> {
    match algorithm {
        Algorithm::TokenBucket => paced(source::TOKEN_BUCKET, "b", Rate::new(quota)?, dynamic, 0),
        Algorithm::LeakyBucket => paced(source::TOKEN_BUCKET, "m", Rate::new(quota)?, dynamic, 0),
        Algorithm::LeakyQueue { max_wait } => {
            let rate = Rate::new(quota)?;
            let wait = as_micros(max_wait);
            let most = (MOST_USED - rate.burst) / rate.rate;
            if wait > most {
                let value = format_args!("{max_wait:?}");
                let most = Duration::from_micros(most);
                let bound = format_args!("at most {most:?} with this quota on Redis");
                return Err(BuildError::new("max_wait", value, bound));
            }
            paced(source::LEAKY_QUEUE, "q", rate, dynamic, wait)
        }
        Algorithm::FixedWindow { staggered } => {
            // Sixteen bits of the key's hash tell apart as many beginnings. It is the last part of the key if the policy is
            // colocated, and else the first in braces; a policy's name can look like one.
            let phase = match (staggered, colocated) {
                (false, _) => "0",
                (true, false) => "floor(tonumber(match(key, '{(%x%x%x%x)'), 16) / 65536 * $WINDOW)",
                (true, true) => {
                    "floor(tonumber(match(key, ':(%x%x%x%x)%x*$'), 16) / 65536 * $WINDOW)"
                }
            };
            let version = if staggered { "p1" } else { "f1" };
            let fresh = format!("now + $WINDOW - (now + {phase}) % $WINDOW");
            window(&fresh, "fresh - 1", version, quota, dynamic)
        }
        Algorithm::FixedWindowFromFirstRequest => {
            window("now + $WINDOW", "now", "h1", quota, dynamic)
        }
        Algorithm::SlidingWindow => sliding("t1", quota, 1, false, dynamic),
        Algorithm::SlidingWindowBuckets { count } => {
            sliding(&format!("s{count}"), quota, count, false, dynamic)
        }
        Algorithm::SlidingWindowStrict { count } => {
            sliding(&format!("v{count}"), quota, count, true, dynamic)
        }
        Algorithm::SlidingWindowLog => counter_up_to(
            MAX_LOG,
            &source::SLIDING_LOG.replace("$MAX_LOG", &LONGEST_LOG.to_string()),
            "l1",
            quota,
            dynamic,
        ),
        other => Err(BuildError::new(
            "algorithm",
            format_args!("{other:?}"),
            "one that this version of the Redis backend supports",
        )),
    }
}

fn paced(
    algorithm: &str,
    version: &str,
    rate: Rate,
    dynamic: bool,
    max_wait: u64,
) -> Result<Part, BuildError> {
    let rate = if dynamic { rate.finer(max_wait) } else { rate };
    let state = if dynamic {
        source::USED
    } else {
        source::FULL_AT
    };
    let quota = if dynamic {
        "
  local function quota(text)
    local rate, token, burst = match(text or '', '^(%d+) (%d+) (%d+)$')
    RATE, TOKEN, BURST = tonumber(rate) or $RATE, tonumber(token) or $TOKEN, tonumber(burst) or $BURST
  end
"
    } else {
        "  local quota, adopt\n"
    };
    let lua = [state, source::DRAINED, algorithm, quota].concat();
    let numbers = [
        ("MOST_USED", MOST_USED),
        ("RATE", rate.rate),
        ("TOKEN", rate.token),
        ("BURST", rate.burst),
        ("MAX_WAIT", max_wait),
    ];
    let alone = (algorithm == source::TOKEN_BUCKET && !dynamic).then(|| Alone {
        lua: fill(source::BUCKET_ALONE, &numbers),
        rate,
    });
    Ok(Part {
        version: format!("{version}{}", if dynamic { "u1" } else { "2" }),
        counts: Counts::Units { max_wait },
        lua: fill(&lua, &numbers),
        alone,
    })
}

/// One window. `fresh` is the end of a window that begins now. A written window counts if it ends after `after`.
fn window(
    fresh: &str,
    after: &str,
    version: &str,
    quota: Quota,
    dynamic: bool,
) -> Result<Part, BuildError> {
    let lua = [source::WINDOW, source::COUNTER].concat();
    let lua = lua.replace("$FRESH", fresh).replace("$AFTER", after);
    counter(&lua, version, quota, dynamic)
}

/// Windows of another length cannot use a count, so the length is in the name of the layout.
fn counter(lua: &str, version: &str, quota: Quota, dynamic: bool) -> Result<Part, BuildError> {
    let micros = as_micros(quota.window());
    let version = match micros.is_multiple_of(1_000_000) {
        true => format!("{version}w{}s", micros / 1_000_000),
        false => format!("{version}w{micros}"),
    };
    counter_up_to(MAX_COUNT, lua, &version, quota, dynamic)
}

fn counter_up_to(
    most: u64,
    lua: &str,
    version: &str,
    quota: Quota,
    dynamic: bool,
) -> Result<Part, BuildError> {
    quota.check_limit(most)?;
    let window = micros("window", quota.window())?;
    if quota.window() < SHORTEST {
        let value = format_args!("{:?}", quota.window());
        let bound = format_args!("at least {SHORTEST:?} on Redis");
        return Err(BuildError::new("window", value, bound));
    }
    let change = if dynamic {
        "\n  local adopt\n  local function quota(text) LIMIT = tonumber(text) or $LIMIT end\n"
    } else {
        "\n  local quota, adopt\n"
    };
    Ok(Part {
        version: version.to_owned(),
        counts: Counts::Tokens(most),
        lua: fill(
            &[lua, change].concat(),
            &[
                ("LIMIT", quota.limit()),
                ("WINDOW", window),
                ("MAX_COUNT", MAX_COUNT),
            ],
        ),
        alone: None,
    })
}

fn sliding(
    version: &str,
    quota: Quota,
    count: u32,
    whole: bool,
    dynamic: bool,
) -> Result<Part, BuildError> {
    // A fraction of a microsecond longer where the count does not divide the window.
    let length = as_micros(quota.window()).div_ceil(u64::from(count));
    let lua = fill(
        source::SLIDING_WINDOW,
        &[("COUNT", count.into()), ("LENGTH", length)],
    )
    .replace("$WHOLE", if whole { "true" } else { "false" });
    counter(&lua, version, quota, dynamic)
}
