use super::{Tag, tag};

/// The store keys of a policy or a set of policies: `prefix:layout:tag:name`.
///
/// The [tag](Tag) is a hash of the caller's key. The layout identifies the format of the value. So a policy with
/// another algorithm, or a later release of the backend, does not misread a value. A name with spaces is replaced by a
/// colon and 64 bits of its hash. So store keys contain no spaces, unless the prefix or the layout does.
///
/// ```
/// use tower_dist_ratelimit::backend::toolkit::{Keys, tag};
///
/// let keys = Keys::new("rl", "b", "login");
/// assert_eq!(keys.of(&tag(b"")).concat(), b"rl:b:af1349b9f5f9a1a6a0404dea36dcc949:login");
/// ```
#[derive(Clone, Debug)]
pub struct Keys {
    before: Box<str>,
    after: Box<str>,
}

impl Keys {
    /// Returns the store keys of a policy, or of a set of policies. For a set, pass as `name` a text that identifies
    /// all of its policies.
    #[must_use]
    pub fn new(prefix: &str, layout: &str, name: &str) -> Self {
        let hash = tag(name.as_bytes());
        let after = match name.contains(' ') {
            true => format!("::{}", String::from_utf8_lossy(&hash[..16])),
            false => format!(":{name}"),
        };
        Self {
            before: format!("{prefix}:{layout}:").into(),
            after: after.into(),
        }
    }

    /// Returns the store key for the caller's key whose hash is `tag`, in three parts to concatenate.
    #[must_use]
    pub fn of<'a>(&'a self, tag: &'a Tag) -> [&'a [u8]; 3] {
        [self.before.as_bytes(), tag, self.after.as_bytes()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_keys_are_short_and_have_no_spaces() {
        let prefix = "p".repeat(64);
        for name in ["login", "a b", &"n".repeat(64), &" ".repeat(64), "\"\\%{}"] {
            let key = Keys::new(&prefix, "b1", name).of(&tag(b" \r\n\0")).concat();
            assert!(key.len() <= 199, "{}", key.len());
            assert!(key.iter().all(u8::is_ascii_graphic));
        }
        let key = |name| Keys::new("rl", "b", name).of(&tag(b"")).concat();
        assert_ne!(key("a b"), key("b a"));
    }
}
