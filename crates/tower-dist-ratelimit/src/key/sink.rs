use std::{fmt, ops::Range};

/// Receives the parts of keys.
///
/// The sink marks the end of each part, so two keys with different parts never have equal bytes. For example, the keys
/// `("a_b", "c")` and `("a", "b_c")` differ.
///
/// The `Debug` output omits the keys, which are often secrets.
///
/// # Cost
///
/// The keys of a request share 128 bytes inside the sink. If they need more, they move to the heap. A server usually
/// limits the size of a request's head, and thereby the size of keys that are taken from the head.
#[derive(Default)]
pub struct KeySink {
    /// An array, because filling a `SmallVec` takes longer than hashing the key.
    inline: [Word; 16],
    /// Holds all words, unless it is empty. Then `inline` holds them.
    heap: Vec<Word>,
    /// Number of words.
    len: usize,
    /// Index of the current key's first word.
    start: usize,
}

/// A processor reads back a whole word faster than a word that was written in pieces, so keys consist of words.
type Word = [u8; 8];

impl fmt::Debug for KeySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySink").finish_non_exhaustive()
    }
}

impl KeySink {
    /// Returns an empty sink.
    ///
    /// ```
    /// use http::Request;
    /// use tower_dist_ratelimit::key::{self, KeyExtractor, KeySink, RequestParts};
    ///
    /// let key = |name: &str| {
    ///     let request = Request::builder().header("x-api-key", name).body(()).ok()?;
    ///     let mut sink = KeySink::new();
    ///     key::header("x-api-key").extract(RequestParts::new(&request), &mut sink)?;
    ///     Some(sink.bytes().to_vec())
    /// };
    /// assert_eq!(key("alice"), key("alice"));
    /// assert_ne!(key("alice"), key("bob"));
    /// ```
    #[must_use]
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part, which can be any bytes of any length.
    ///
    /// The sink stores a part in words of eight bytes. The last word of a part holds the remaining bytes, at most
    /// seven. The highest byte of that word holds the number of the remaining bytes, with the highest bit set.
    ///
    /// A word with the part's length follows each part except the first of a key. The highest byte of a length is zero,
    /// which distinguishes a length from the last word of a part. So a key can be read backwards in only one way. A key
    /// of one part, the usual case, needs no length.
    #[inline]
    pub fn part(&mut self, bytes: &[u8]) {
        let follows = self.len > self.start;
        let (words, _) = bytes.as_chunks();
        for &word in words {
            self.push(word);
        }
        self.push(last_word(bytes).to_le_bytes());
        if follows {
            self.push((bytes.len() as u64).to_le_bytes());
        }
    }

    #[inline]
    fn push(&mut self, word: Word) {
        match self.inline.get_mut(self.len) {
            Some(place) if self.heap.is_empty() => *place = word,
            _ => self.spill(word),
        }
        self.len += 1;
    }

    #[cold]
    fn spill(&mut self, word: Word) {
        if self.heap.is_empty() {
            self.heap.extend(self.inline);
        }
        self.heap.push(word);
    }

    /// Runs `write`. Returns the range of the key's bytes, and whether the key was found. A missing key has no bytes,
    /// unlike every key with a part.
    #[inline]
    pub(crate) fn key(
        &mut self,
        write: impl FnOnce(&mut Self) -> Option<()>,
    ) -> (Range<usize>, bool) {
        let start = self.len;
        self.start = start;
        let found = self.attempt(write);
        let bytes = |words| size_of::<Word>() * words;
        (bytes(start)..bytes(self.len), found)
    }

    /// Runs `write`, and returns whether it returned `Some`. If not, discards the parts that it wrote.
    #[inline]
    pub(super) fn attempt(&mut self, write: impl FnOnce(&mut Self) -> Option<()>) -> bool {
        let end = self.len;
        let found = write(self).is_some();
        if !found {
            self.len = end;
            self.heap.truncate(end);
        }
        found
    }

    /// The bytes of all parts in this sink. Two keys have equal bytes if and only if they have equal parts.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &*self.heap {
            [] => self.inline[..self.len].as_flattened(),
            words => words.as_flattened(),
        }
    }
}

/// Returns a word that holds the bytes after the last whole word, and their number. The highest bit distinguishes this
/// word from a length.
#[inline]
fn last_word(bytes: &[u8]) -> u64 {
    let (_, rest) = bytes.as_chunks::<8>();
    let bits = match bytes.last_chunk() {
        _ if rest.is_empty() => 0,
        // The last eight bytes overlap the previous word. The shift removes that word's bytes.
        Some(end) => u64::from_le_bytes(*end) >> (64 - 8 * rest.len()),
        None => {
            let rest = rest.iter().rev();
            rest.fold(0, |word, &byte| word << 8 | u64::from(byte))
        }
    };
    bits | (0x80 | rest.len() as u64) << 56
}

/// A key in the form that `Memory` hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyBytes<'a> {
    /// The bytes of the only part.
    Part(&'a [u8]),
    /// The bytes of a sink without a key or with a key of several parts, or any other bytes.
    Other(&'a [u8]),
}

impl<'a> KeyBytes<'a> {
    /// Recognizes a key of one part by its last word. Different bytes never give equal results.
    #[inline]
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        if let ([words @ .., last], []) = bytes.as_chunks() {
            let part = &bytes[..size_of_val(words) + usize::from(last[7] & 7)];
            if *last == last_word(part).to_le_bytes() {
                return Self::Part(part);
            }
        }
        Self::Other(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::{KeyBytes, KeySink};
    use crate::key::IntoKey;

    fn bytes(key: impl IntoKey) -> Vec<u8> {
        let mut sink = KeySink::new();
        key.write(&mut sink);
        sink.bytes().to_vec()
    }

    #[test]
    fn parts_cannot_be_confused() {
        assert_ne!(bytes(("a_b", "c")), bytes(("a", "b_c")));
        assert_ne!(bytes(("", "a")), bytes(("a", "")));
        assert_ne!(bytes("a"), bytes(("a", "")));
        assert_eq!(bytes(("a", "b")), bytes((String::from("a"), &b"b"[..])));
    }

    /// Some parts end in a word that looks like a length or like the end of a part.
    #[test]
    fn no_two_keys_are_the_same_bytes() {
        let end_of_one: &[u8] = &[b'x', 0, 0, 0, 0, 0, 0, 0x81];
        let length: &[u8] = &[8, 0, 0, 0, 0, 0, 0, 0];
        let texts = (0..20).map(|len| vec![0; len]);
        let tricky = [end_of_one, length].into_iter().flat_map(|word| {
            [
                word.to_vec(),
                [b"x", word].concat(),
                [word, b"x"].concat(),
                word.repeat(2),
            ]
        });
        let parts: Vec<Vec<u8>> = texts.chain(tricky).collect();
        let mut keys: Vec<Vec<&Vec<u8>>> = vec![Vec::new()];
        for one in &parts {
            keys.push(vec![one]);
            for two in &parts {
                keys.push(vec![one, two]);
                keys.extend(parts.iter().map(|three| vec![one, two, three]));
            }
        }
        let mut seen = HashMap::new();
        for key in &keys {
            let mut sink = KeySink::new();
            key.iter().for_each(|part| sink.part(part));
            let other = seen.insert(sink.bytes().to_vec(), key);
            assert_eq!(other, None, "{key:?}");
            let is_part = matches!(KeyBytes::of(sink.bytes()), KeyBytes::Part(_));
            assert_eq!(is_part, key.len() == 1, "{key:?}");
        }
    }

    #[test]
    fn a_key_of_one_part_is_hashed_alike_with_and_without_a_copy() {
        for len in 0..40 {
            let text = "x".repeat(len);
            let copied = bytes(text.as_str());
            let part = text.only_part().unwrap();
            assert_eq!(part, text.as_bytes());
            assert_eq!(KeyBytes::of(&copied), KeyBytes::Part(part));
        }
        for other in [bytes(("a", "b")), bytes(None::<&str>), bytes((1, "b"))] {
            assert_eq!(KeyBytes::of(&other), KeyBytes::Other(&other));
        }
    }

    /// Bytes that look like the end of a part, and others, also of lengths that no sink has.
    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0), Just(1), 0x7f_u8..0x8a];
        proptest::collection::vec(byte, 0..20)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn different_bytes_are_different_keys(one in any_bytes(), place in 0_usize..20, byte in 0x7f_u8..0x8a) {
            let mut two = one.clone();
            match two.get_mut(place) {
                Some(old) => *old = byte,
                None => two.push(byte),
            }
            prop_assert_eq!(one == two, KeyBytes::of(&one) == KeyBytes::of(&two));
        }
    }

    #[test]
    fn a_key_has_the_same_bytes_at_any_position() {
        let mut sink = KeySink::new();
        for len in 0..40 {
            let text = "x".repeat(len);
            let (one, _) = sink.key(|sink| text.as_str().write(sink));
            let (two, _) = sink.key(|sink| (text.as_str(), "y").write(sink));
            assert_eq!(sink.bytes()[one], bytes(text.as_str()));
            assert_eq!(sink.bytes()[two], bytes((text.as_str(), "y")));
        }
    }

    #[test]
    fn only_a_missing_key_is_empty() {
        let mut sink = KeySink::new();
        let missing = sink.key(|sink| ("a", None::<&str>).write(sink));
        assert_eq!(missing, (0..0, false));
        let (written, found) = sink.key(|sink| "".write(sink));
        assert!(found && !written.is_empty());
    }

    #[test]
    fn a_discarded_long_key_leaves_the_other_keys() {
        let long = "x".repeat(200);
        let mut sink = KeySink::new();
        let (first, _) = sink.key(|sink| "first".write(sink));
        sink.key(|sink| (long.as_str(), None::<&str>).write(sink));
        let (second, _) = sink.key(|sink| "other".write(sink));
        assert_eq!(sink.bytes()[first], bytes("first"));
        assert_eq!(sink.bytes()[second], bytes("other"));
    }

    #[test]
    fn a_part_of_64_kib_is_kept_whole() {
        let long = "x".repeat(64 * 1024);
        assert_eq!(bytes(long.as_str()).len(), 8 + long.len());
    }
}
