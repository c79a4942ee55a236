use http::HeaderValue;

/// The largest integer of a structured field (RFC 9651, section 3.3.1): fifteen digits.
pub(super) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The text of a header: a number, or a list of a structured field whose members have parameters.
///
/// Every response needs such a text, so the code avoids `format!` and `SmallVec`, which take several times as long. It writes
/// each piece in place, because moving a piece that was just written is slow.
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

    #[inline]
    pub(super) fn member(&mut self, quoted: &str) {
        if !self.text().is_empty() {
            self.push(b", ");
        }
        self.push(quoted.as_bytes());
    }

    #[inline]
    pub(super) fn parameter(&mut self, name: &[u8; 3], value: u64) {
        self.push(name);
        self.number(value.min(MAX_INTEGER));
    }

    /// Writes a number in decimal.
    #[inline]
    pub(super) fn number(&mut self, number: u64) {
        write_number(number, self.place(digits(number)));
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
        self.place(text.len()).copy_from_slice(text);
    }

    /// Returns space for `len` bytes at the end.
    #[inline]
    fn place(&mut self, len: usize) -> &mut [u8] {
        let end = self.len + len;
        if !self.heap.is_empty() || end > self.inline.len() {
            return self.place_on_heap(len);
        }
        let start = self.len;
        self.len = end;
        &mut self.inline[start..end]
    }

    #[cold]
    fn place_on_heap(&mut self, len: usize) -> &mut [u8] {
        if self.heap.is_empty() {
            self.heap.extend_from_slice(&self.inline[..self.len]);
        }
        let start = self.heap.len();
        self.heap.resize(start + len, b' ');
        &mut self.heap[start..]
    }

    fn text(&self) -> &[u8] {
        if self.heap.is_empty() {
            &self.inline[..self.len]
        } else {
            &self.heap
        }
    }
}

/// The numbers from `00` to `99`. Writing two digits at a time halves the number of dependent divisions.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number: u8 = 0;
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

/// Returns the number of decimal digits.
#[inline]
fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Writes a number into a slice of exactly its number of digits.
#[inline]
fn write_number(mut number: u64, to: &mut [u8]) {
    let mut pairs = to.rchunks_exact_mut(2);
    for pair in &mut pairs {
        pair.copy_from_slice(&PAIRS[(number % 100) as usize]);
        number /= 100;
    }
    if let [digit] = pairs.into_remainder() {
        *digit = b'0' + (number % 10) as u8;
    }
}
