use bytes::Bytes;
use http::HeaderValue;

/// What a field's value is made of.
pub(super) trait Text {
    /// Writes it; the same each time.
    fn write(&self, to: &mut impl Sink);
}

/// Where texts are written.
pub(super) trait Sink {
    fn text(&mut self, text: &[u8]);

    /// In decimal.
    fn number(&mut self, number: u64);
}

/// A field's value, if it can be one, in one allocation of just its length.
///
/// Made on every response, so by hand: the formatting machinery takes several times as long, and so does moving what was
/// written in pieces a moment ago.
#[inline]
pub(super) fn value(text: &impl Text) -> Option<HeaderValue> {
    let mut length = Length(0);
    text.write(&mut length);
    let mut bytes = Vec::with_capacity(length.0);
    text.write(&mut bytes);
    HeaderValue::from_maybe_shared(Bytes::from(bytes)).ok()
}

/// How long it will be.
struct Length(usize);

impl Sink for Length {
    #[inline]
    fn text(&mut self, text: &[u8]) {
        self.0 += text.len();
    }

    #[inline]
    fn number(&mut self, number: u64) {
        self.0 += digits(number);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn text(&mut self, text: &[u8]) {
        self.extend_from_slice(text);
    }

    #[inline]
    fn number(&mut self, mut number: u64) {
        let start = self.len();
        self.resize(start + digits(number), b'0');
        let mut pairs = self[start..].rchunks_exact_mut(2);
        for pair in &mut pairs {
            pair.copy_from_slice(&PAIRS[(number % 100) as usize]);
            number /= 100;
        }
        if let [digit] = pairs.into_remainder() {
            *digit = b'0' + (number % 10) as u8;
        }
    }
}

/// From `00` to `99`: two digits at a time, because each division waits for the one before.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number: u8 = 0;
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

#[inline]
fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}
