use crate::{
    Algorithm, Policy,
    backend::toolkit::{Tag, tag},
};

/// The store keys of one set of policies: `prefix:layout:tag:name`.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    before: Box<str>,
    after: Box<str>,
}

impl Keys {
    pub(super) fn new(prefix: &str, policies: &[Policy]) -> Self {
        let (layout, name) = match policies {
            [policy] => (layout(policy), policy.name().to_owned()),
            policies => {
                let parts = policies.iter().map(|policy| {
                    let name = policy.name();
                    format!("{} {name} {} ", name.len(), layout(policy))
                });
                ("s1".to_owned(), parts.collect())
            }
        };
        // Names can have spaces, which keys cannot.
        let name = match name.contains(' ') {
            true => format!(":{}", digest(&name)),
            false => name,
        };
        Self {
            before: format!("{prefix}:{layout}:").into(),
            after: format!(":{name}").into(),
        }
    }

    /// Returns the store key of a caller's key.
    pub(super) fn of(&self, tag: &Tag) -> Vec<u8> {
        [self.before.as_bytes(), tag, self.after.as_bytes()].concat()
    }
}

/// Names the meaning of a policy's state: the algorithm, and the length and number of its windows. A count of a long window
/// means nothing in a short one.
fn layout(policy: &Policy) -> String {
    let window = policy.quota().window().as_nanos();
    match policy.algorithm() {
        Algorithm::TokenBucket => "b".to_owned(),
        Algorithm::LeakyBucket => "m".to_owned(),
        Algorithm::LeakyQueue { .. } => "q".to_owned(),
        Algorithm::FixedWindowFromFirstRequest => format!("h{window}"),
        Algorithm::FixedWindow { staggered } => {
            format!("{}{window}", if staggered { 'p' } else { 'f' })
        }
        Algorithm::SlidingWindowBuckets { count } => format!("w{window}.{count}"),
        Algorithm::SlidingWindowStrict { count } => format!("v{window}.{count}"),
        Algorithm::SlidingWindow => format!("t{window}"),
        Algorithm::SlidingWindowLog => format!("l{window}"),
    }
}

/// Sixteen digits that stand for a text.
fn digest(text: &str) -> String {
    String::from_utf8_lossy(&tag(text.as_bytes())[..16]).into_owned()
}

/// 64 bits of a tag, the same on every machine.
pub(super) fn bits(tag: &Tag) -> u64 {
    let digits = std::str::from_utf8(&tag[..16]).unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quota;

    #[test]
    fn keys_are_short_and_have_no_spaces() {
        let prefix = "p".repeat(64);
        let policy = |name: &str| {
            Policy::new(name, Quota::new(1, crate::arithmetic::HORIZON)).sliding_window_strict(100)
        };
        let key = |policies: &[Policy]| Keys::new(&prefix, policies).of(&tag(b" \r\n\0"));
        for name in ["login", "a b", &"n".repeat(64), &" ".repeat(64), "\"\\%{}"] {
            for key in [key(&[policy(name)]), key(&[policy(name), policy("b")])] {
                assert!(key.len() <= 220, "{}", key.len());
                assert!(key.iter().all(u8::is_ascii_graphic));
            }
        }
        let key = |name| Keys::new("rl", &[Policy::new(name, Quota::per_second(1))]).of(&tag(b""));
        assert_eq!(key("login"), b"rl:b:af1349b9f5f9a1a6a0404dea36dcc949:login");
        assert_ne!(key("a b"), key("b a"));
    }
}
