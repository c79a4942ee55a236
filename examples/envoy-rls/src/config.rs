//! The configuration: limits by descriptor, in the YAML format of envoyproxy/ratelimit.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tower::BoxError;

use crate::proto::{Entry, RateLimit, Unit};

/// The descriptors of every domain.
pub(crate) type Domains = HashMap<String, Level>;

/// Reads files of one domain each.
///
/// # Errors
///
/// Fails if a file cannot be read or is not valid, or if two files have the same domain. The error names the file, and
/// for invalid YAML the line and usually the field.
pub(crate) fn load(paths: &[PathBuf]) -> Result<Domains, BoxError> {
    let mut domains = Domains::new();
    for path in paths {
        let named = |error: BoxError| format!("{}: {error}", path.display());
        let File {
            domain,
            descriptors,
        } = read(path).map_err(named)?;
        if domains.contains_key(&domain) {
            return Err(named(format!("another file has the domain `{domain}`").into()).into());
        }
        domains.insert(domain, descriptors);
    }
    Ok(domains)
}

fn read(path: &Path) -> Result<File, BoxError> {
    Ok(parse(&std::fs::read_to_string(path)?)?)
}

pub(crate) fn parse(yaml: &str) -> Result<File, serde_saphyr::Error> {
    serde_saphyr::from_str(yaml)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    #[serde(deserialize_with = "not_empty")]
    pub(crate) domain: String,
    pub(crate) descriptors: Level,
}

/// The descriptors of one level of nesting, by key and value. A descriptor for any value has the value `""`.
#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "Vec<Descriptor>")]
pub(crate) struct Level(HashMap<String, HashMap<String, Node>>);

#[derive(Debug)]
struct Node {
    rule: Option<Rule>,
    nested: Level,
}

/// The limit of a descriptor.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// `None` is unlimited.
    pub(crate) limit: Option<RateLimit>,
    /// Hits are counted, but the status is never `OVER_LIMIT`.
    pub(crate) shadow: bool,
}

impl Level {
    /// Returns the rule of a descriptor. On each level, a rule with the entry's value takes precedence over a rule with
    /// its key alone. A descriptor of n entries matches only rules that are nested n deep.
    pub(crate) fn find(&self, entries: &[Entry]) -> Option<&Rule> {
        let (first, rest) = entries.split_first()?;
        let values = self.0.get(&first.key)?;
        let node = values.get(&first.value).or_else(|| values.get(""))?;
        match rest {
            [] => node.rule.as_ref(),
            rest => node.nested.find(rest),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    #[serde(deserialize_with = "not_empty")]
    key: String,
    #[serde(default, deserialize_with = "no_wildcard")]
    value: String,
    rate_limit: Option<Limit>,
    #[serde(default)]
    shadow_mode: bool,
    #[serde(default)]
    descriptors: Level,
}

/// The block `rate_limit`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "LimitFields")]
struct Limit(Option<RateLimit>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitFields {
    #[serde(default)]
    name: String,
    unit: Option<Unit>,
    requests_per_unit: Option<u32>,
    #[serde(default)]
    unlimited: bool,
}

impl TryFrom<Vec<Descriptor>> for Level {
    type Error = String;

    fn try_from(descriptors: Vec<Descriptor>) -> Result<Self, String> {
        let mut level = Self::default();
        for descriptor in descriptors {
            let (key, value) = (descriptor.key.clone(), descriptor.value.clone());
            let twice = match &*value {
                "" => format!("the descriptor with key `{key}` and no value is there twice"),
                _ => format!("the descriptor with key `{key}` and value `{value}` is there twice"),
            };
            let values = level.0.entry(key).or_default();
            if values.insert(value, descriptor.into()).is_some() {
                return Err(twice);
            }
        }
        Ok(level)
    }
}

impl From<Descriptor> for Node {
    fn from(descriptor: Descriptor) -> Self {
        let rule = descriptor.rate_limit.map(|Limit(mut limit)| {
            if let Some(RateLimit { name, .. }) = &mut limit {
                let given = if name.is_empty() {
                    &descriptor.key
                } else {
                    &*name
                };
                // The name goes into headers, in quotes.
                *name = given.replace(|c: char| !matches!(c, ' '..='~') || "\"\\".contains(c), "_");
            }
            let shadow = descriptor.shadow_mode;
            Rule { limit, shadow }
        });
        let nested = descriptor.descriptors;
        Self { rule, nested }
    }
}

impl TryFrom<LimitFields> for Limit {
    type Error = &'static str;

    fn try_from(fields: LimitFields) -> Result<Self, &'static str> {
        match (fields.unlimited, fields.unit, fields.requests_per_unit) {
            (true, None, None) => Ok(Self(None)),
            (false, Some(unit), Some(requests_per_unit)) => {
                let (unit, name) = (unit.into(), fields.name);
                Ok(Self(Some(RateLimit {
                    requests_per_unit,
                    unit,
                    name,
                })))
            }
            (true, ..) => Err("`unlimited` excludes `unit` and `requests_per_unit`"),
            (false, None, _) => Err("missing field `unit`"),
            (false, ..) => Err("missing field `requests_per_unit`"),
        }
    }
}

fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Err(D::Error::custom("must not be empty"));
    }
    Ok(text)
}

/// Rejects `*`, which is a wildcard in envoyproxy/ratelimit.
fn no_wildcard<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let value = String::deserialize(deserializer)?;
    if value.contains('*') {
        return Err(D::Error::custom("wildcards are not supported"));
    }
    Ok(value)
}
