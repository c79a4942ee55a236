use http::HeaderValue;

/// The largest integer of a structured field (RFC 9651, section 3.3.1): fifteen digits.
pub(super) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The text of a header: a number, or a structured-field list whose members have parameters.
///
/// By default most responses need such a text, so the code avoids `format!` and `SmallVec`, which take several times
/// as long.
pub(super) struct FieldText {
    inline: [u8; 128],
    /// Number of bytes in `inline`.
    len: usize,
    /// All bytes if `inline` is too small for them, otherwise empty.
    heap: Vec<u8>,
}

impl FieldText {
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            inline: [0; 128],
            len: 0,
            heap: Vec::new(),
        }
    }

    pub(super) fn member(&mut self, quoted: &str) {
        if !self.text().is_empty() {
            self.push(b", ");
        }
        self.push(quoted.as_bytes());
    }

    pub(super) fn parameter(&mut self, name: &[u8; 3], value: u64) {
        self.push(name);
        self.number(value.min(MAX_INTEGER));
    }

    /// Writes a number in decimal.
    #[inline]
    pub(super) fn number(&mut self, number: u64) {
        self.push(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Returns `None` for an empty list, for which the header is omitted (RFC 9651, section 3.1).
    pub(super) fn finish(&self) -> Option<HeaderValue> {
        match self.text() {
            [] => None,
            text => HeaderValue::from_bytes(text).ok(),
        }
    }

    #[inline]
    fn push(&mut self, text: &[u8]) {
        let end = self.len + text.len();
        match self.inline.get_mut(self.len..end) {
            Some(place) if self.heap.is_empty() => {
                place.copy_from_slice(text);
                self.len = end;
            }
            _ => self.push_on_heap(text),
        }
    }

    #[cold]
    fn push_on_heap(&mut self, text: &[u8]) {
        if self.heap.is_empty() {
            self.heap.extend_from_slice(&self.inline[..self.len]);
        }
        self.heap.extend_from_slice(text);
    }

    fn text(&self) -> &[u8] {
        match self.heap.is_empty() {
            true => &self.inline[..self.len],
            false => &self.heap,
        }
    }
}
