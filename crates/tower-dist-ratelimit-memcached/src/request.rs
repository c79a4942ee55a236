use bytes::BytesMut;

/// A meta command on one key, built flag by flag. The connection adds an opaque number. The server's answer repeats
/// this number, unless the answer is an error line.
pub(super) struct Command {
    text: Vec<u8>,
    /// The length of the part before the opaque number.
    head: usize,
}

/// A time to live in the protocol's format: seconds from now for a time up to 30 days, seconds since 1970 for a later
/// time, and 0 for an item that never expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ttl(u32);

/// The greatest number that the server reads as seconds from now. It reads a greater one as a time since 1970.
const LONGEST_TTL: u64 = 30 * 86_400;

/// Seconds added to times since 1970, so that a server whose clock is up to a day ahead does not expire an item early.
const SLACK: u64 = 86_400;

impl Ttl {
    /// A time to live of `seconds`, or of 1 second if `seconds` is 0. If `seconds` is above [`LONGEST_TTL`], the time
    /// is [`SLACK`] longer, or unlimited. `now` is in seconds since 1970.
    pub(super) fn seconds(seconds: u64, now: u64) -> Self {
        let seconds = seconds.max(1);
        if seconds <= LONGEST_TTL {
            return Self(u32::try_from(seconds).unwrap_or(0));
        }
        let end = now.saturating_add(seconds).saturating_add(SLACK);
        // Servers count in 31 bits, so an item that would expire after January 2038 never expires.
        Self(i32::try_from(end).map_or(0, i32::unsigned_abs))
    }
}

impl Command {
    pub(super) fn new(command: &str, key: &[u8]) -> Self {
        let text = [command.as_bytes(), b" ", key].concat();
        Self {
            head: text.len(),
            text,
        }
    }

    /// The command `ms`, which writes a value of `length` bytes. [`value`](Self::value) adds the value.
    pub(super) fn set(key: &[u8], length: usize) -> Self {
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        let command = Self::new("ms", key).flag(" ", length);
        Self {
            head: command.text.len(),
            ..command
        }
    }

    /// Adds the text `flag` and a number.
    pub(super) fn flag(mut self, flag: &str, number: u64) -> Self {
        self.text.extend_from_slice(flag.as_bytes());
        self.text.extend_from_slice(digits(&mut [0; 20], number));
        self
    }

    pub(super) fn ttl(self, flag: &str, ttl: Ttl) -> Self {
        self.flag(flag, ttl.0.into())
    }

    /// Adds flags without numbers, and ends the line.
    pub(super) fn end(mut self, flags: &str) -> Self {
        self.text.extend_from_slice(flags.as_bytes());
        self.text.extend_from_slice(b"\r\n");
        self
    }

    /// Adds flags without numbers, ends the line, and adds the value.
    pub(super) fn value(self, flags: &str, value: &[u8]) -> Self {
        let mut command = self.end(flags);
        command.text.extend_from_slice(value);
        command.text.extend_from_slice(b"\r\n");
        command
    }

    pub(super) fn write(&self, out: &mut BytesMut, opaque: u64) {
        out.extend_from_slice(&self.text[..self.head]);
        out.extend_from_slice(b" O");
        out.extend_from_slice(digits(&mut [0; 20], opaque));
        out.extend_from_slice(&self.text[self.head..]);
    }
}

fn digits(buffer: &mut [u8; 20], mut value: u64) -> &[u8] {
    let mut first = buffer.len();
    loop {
        first -= 1;
        buffer[first] = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
        if value == 0 {
            return &buffer[first..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_line_that_its_value_follows() {
        let mut out = BytesMut::new();
        let add = Command::new("ma", b"k").flag(" D", u64::MAX);
        let add = add.ttl(" N", Ttl::seconds(60, 0)).end(" t v");
        add.write(&mut out, 7);
        let set = Command::set(b"k", 2).flag(" C", 0).value(" c", b"ab");
        set.write(&mut out, 8);
        let text = "ma k O7 D18446744073709551615 N60 t v\r\nms k 2 O8 C0 c\r\nab\r\n";
        assert_eq!(out, text.as_bytes());
    }

    #[test]
    fn a_time_above_thirty_days_is_a_date_and_a_date_after_2038_is_never() {
        let now = 1_800_000_000;
        let day = 86_400;
        assert_eq!(Ttl::seconds(0, now), Ttl(1));
        assert_eq!(Ttl::seconds(30 * day, now), Ttl(2_592_000));
        assert_eq!(
            Ttl::seconds(30 * day + 1, now),
            Ttl(1_800_000_000 + 2_592_001 + 86_400)
        );
        assert_eq!(Ttl::seconds(20 * 365 * day, now), Ttl(0));
        assert_eq!(Ttl::seconds(u64::MAX, u64::MAX), Ttl(0));
    }
}
