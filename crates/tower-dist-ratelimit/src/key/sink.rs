use std::{fmt, ops::Range};

/// Takes the parts of keys.
///
/// Every part is written behind its length, so keys of several parts cannot be taken for one another: `("a_b", "c")` is
/// not `("a", "b_c")`.
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
}

impl fmt::Debug for KeySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySink")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl KeySink {
    pub(crate) fn new() -> Self {
        Self {
            inline: [0; 128],
            heap: Vec::new(),
            len: 0,
        }
    }

    /// Adds a part, which can be any bytes and of any length.
    pub fn part(&mut self, bytes: &[u8]) {
        let length = (bytes.len() as u64).to_le_bytes();
        let text = self.len + length.len();
        let end = text + bytes.len();
        if self.heap.is_empty() && end <= self.inline.len() {
            self.inline[self.len..text].copy_from_slice(&length);
            copy(&mut self.inline[text..end], bytes);
        } else {
            if self.heap.is_empty() {
                self.heap.extend_from_slice(&self.inline[..self.len]);
            }
            self.heap.extend_from_slice(&length);
            self.heap.extend_from_slice(bytes);
        }
        self.len = end;
    }

    /// Runs `write` and says where what it wrote is. What a missing key leaves behind is taken back, so that it is the
    /// empty key: one that no parts make.
    pub(crate) fn key(
        &mut self,
        write: impl FnOnce(&mut Self) -> Option<()>,
    ) -> (Range<usize>, bool) {
        let start = self.len;
        let found = write(self).is_some();
        if !found {
            self.len = start;
            self.heap.truncate(start);
        }
        (start..self.len, found)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.heap.is_empty() {
            &self.inline[..self.len]
        } else {
            &self.heap
        }
    }
}

/// In words, as the hash will read them: a word that was written by two overlapping copies, which is how the usual one
/// copies a few bytes, takes a processor longer to read back than to hash.
fn copy(to: &mut [u8], from: &[u8]) {
    let (words, rest) = from.as_chunks::<8>();
    let (to_words, to_rest) = to.as_chunks_mut::<8>();
    for (to, word) in to_words.iter_mut().zip(words) {
        *to = *word;
    }
    for (to, byte) in to_rest.iter_mut().zip(rest) {
        *to = *byte;
    }
}

#[cfg(test)]
mod tests {
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
