use std::{fmt, ops::Range};

/// Takes the parts of keys.
///
/// Where a part ends is written, too, so keys of several parts cannot be taken for one another: `("a_b", "c")` is not
/// `("a", "b_c")`.
///
/// # Cost
///
/// The keys of a request share 128 bytes on the stack. What does not fit goes to the heap for as long as the decision
/// takes; a key from the request's head is at most as long as the server has let the head be.
///
/// Its `Debug` leaves the keys out: they are often secrets.
pub struct KeySink {
    /// Plain bytes, because a vector that can spill takes longer to fill than the whole hash.
    inline: [u8; 128],
    /// All the bytes, once they do not fit inline; else empty.
    heap: Vec<u8>,
    len: usize,
    /// Where the present key starts.
    start: usize,
}

impl Default for KeySink {
    fn default() -> Self {
        Self::new()
    }
}

/// What keys are made of.
const WORD: usize = size_of::<u64>();

impl fmt::Debug for KeySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySink")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl KeySink {
    /// An empty sink.
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
        Self {
            inline: [0; 128],
            heap: Vec::new(),
            len: 0,
            start: 0,
        }
    }

    /// Adds a part, which can be any bytes and of any length.
    ///
    /// In whole words, as the hash will read them: a word that was written in pieces takes a processor longer to read
    /// back than to hash. The last word has the bytes that are left, at most seven, and how many in its highest byte. Behind
    /// each part but the first comes its length, whose highest byte is zero. So read from its end a key comes apart in one
    /// way only, and a key of one part, which most are, takes no more words than its bytes.
    #[inline]
    pub fn part(&mut self, bytes: &[u8]) {
        let last = last_word(bytes).to_le_bytes();
        let length = (bytes.len() as u64).to_le_bytes();
        let follows = self.len > self.start;
        let text = bytes.len() / WORD * WORD;
        let end = self.len + text + WORD;
        let with_length = end + if follows { WORD } else { 0 };
        if self.heap.is_empty() && with_length <= self.inline.len() {
            copy_words(&bytes[..text], &mut self.inline[self.len..end - WORD]);
            self.inline[end - WORD..end].copy_from_slice(&last);
            if follows {
                self.inline[end..with_length].copy_from_slice(&length);
            }
        } else {
            self.spill(&bytes[..text], last, follows.then_some(length));
        }
        self.len = with_length;
    }

    #[cold]
    fn spill(&mut self, words: &[u8], last: [u8; WORD], length: Option<[u8; WORD]>) {
        if self.heap.is_empty() {
            self.heap.extend_from_slice(&self.inline[..self.len]);
        }
        self.heap.extend_from_slice(words);
        self.heap.extend_from_slice(&last);
        self.heap.extend(length.into_iter().flatten());
    }

    /// Runs `write` and says where what it wrote is. What a missing key leaves behind is taken back, so that it is the
    /// empty key: one that no parts make.
    #[inline]
    pub(crate) fn key(
        &mut self,
        write: impl FnOnce(&mut Self) -> Option<()>,
    ) -> (Range<usize>, bool) {
        let start = self.len;
        self.start = start;
        let found = write(self).is_some();
        if !found {
            self.len = start;
            self.heap.truncate(start);
        }
        (start..self.len, found)
    }

    /// The bytes of the parts. Keys of equal parts have equal bytes, other keys have others.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        if self.heap.is_empty() {
            &self.inline[..self.len]
        } else {
            &self.heap
        }
    }
}

/// Copies up to four words without a call, which takes longer than they do; from both ends, where there are more than two.
#[inline]
fn copy_words(words: &[u8], to: &mut [u8]) {
    const TWO: usize = 2 * WORD;
    match words.len() {
        0 => {}
        WORD => copy_start::<WORD>(words, to),
        TWO..=32 => {
            copy_start::<TWO>(words, to);
            if let (Some(end), Some(to)) = (words.last_chunk::<TWO>(), to.last_chunk_mut()) {
                *to = *end;
            }
        }
        _ => to.copy_from_slice(words),
    }
}

#[inline]
fn copy_start<const LEN: usize>(bytes: &[u8], to: &mut [u8]) {
    if let (Some(start), Some(to)) = (bytes.first_chunk::<LEN>(), to.first_chunk_mut()) {
        *to = *start;
    }
}

/// The bytes behind the last whole word, and how many they are. The highest bit says that it is not a length.
#[inline]
fn last_word(bytes: &[u8]) -> u64 {
    let (_, rest) = bytes.as_chunks::<WORD>();
    let bits = match bytes.last_chunk() {
        _ if rest.is_empty() => 0,
        // Out of the last eight bytes, of which some belong to the word before.
        Some(end) => u64::from_le_bytes(*end) >> (u64::BITS as usize - 8 * rest.len()),
        None => rest
            .iter()
            .rev()
            .fold(0, |word, &byte| word << 8 | u64::from(byte)),
    };
    bits | (0x80 | rest.len() as u64) << 56
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::KeySink;
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

    /// Parts that end in a word that looks like a length, or like the end of a part, among others of every length.
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
        }
    }

    #[test]
    fn a_key_is_the_same_wherever_it_is() {
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
    fn a_missing_key_is_empty_and_no_key_is() {
        let mut sink = KeySink::new();
        assert_eq!(
            sink.key(|sink| ("a", None::<&str>).write(sink)),
            (0..0, false)
        );
        let (written, found) = sink.key(|sink| "".write(sink));
        assert!(found && !written.is_empty());
    }

    #[test]
    fn a_long_key_that_is_taken_back_leaves_the_others() {
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
