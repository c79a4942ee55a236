use std::fmt;

use bytes::{Buf, BytesMut};
use smallvec::SmallVec;

/// The longest line that a server sends.
const LONGEST_LINE: usize = 2048;

/// The longest value that is read: more than any of ours.
pub(super) const LONGEST_VALUE: usize = 16 << 10;

/// The longest value that is skipped: what servers can be told to store at most.
const LONGEST_SKIP: u64 = 1 << 30;

/// How a meta command went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// `HD`: done.
    Done,
    /// `VA`: done, and here is the value.
    Value,
    /// `EN`: there is no such item to read.
    Miss,
    /// `NF`: there is no such item to change.
    NotFound,
    /// `NS`: it could not be added, as there is one.
    NotStored,
    /// `EX`: it is another one than was expected.
    Exists,
    /// `MN`: all commands before this one are answered.
    NoOp,
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Meta(Meta),
    /// A command that it could not do; this is why.
    Error(String),
    /// Its version.
    Version(String),
}

/// The answer to a meta command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) code: Code,
    /// None if it is longer than anything of ours.
    pub(super) value: Option<Value>,
    pub(super) cas: Option<u64>,
    /// Seconds that it is kept; negative: for ever.
    pub(super) ttl: Option<i64>,
    pub(super) opaque: Option<u64>,
}

pub(super) type Value = SmallVec<[u8; 64]>;

/// Bytes that are not the protocol. What follows them cannot be told, so the connection is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nonsense(String);

impl Nonsense {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server does not speak the protocol: {}", self.0)
    }
}

/// Reads replies, in whatever pieces they come.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// A value that is too long to be kept: its header, and how much of it, and of the line's end, is still to come.
    skipping: Option<(Meta, u64)>,
}

impl Parser {
    /// The next reply, if it is there as a whole. Takes what it has read.
    pub(super) fn next(&mut self, bytes: &mut BytesMut) -> Result<Option<Reply>, Nonsense> {
        if self.skipping.is_some() {
            return Ok(self.skip(bytes));
        }
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
            return match bytes.len() {
                0..=LONGEST_LINE => Ok(None),
                _ => Err(Nonsense::new("a line without an end")),
            };
        };
        let Some(line) = bytes[..end].strip_suffix(b"\r") else {
            return Err(Nonsense::new("a line that ends in half a line's end"));
        };
        if line.len() > LONGEST_LINE {
            return Err(Nonsense::new("a line that is too long"));
        }
        let (reply, length) = header(line)?;
        let Some(length) = length else {
            bytes.advance(end + 1);
            return Ok(Some(reply));
        };
        let Reply::Meta(mut meta) = reply else {
            return Err(Nonsense::new("a value of no item"));
        };
        let kept = usize::try_from(length).ok();
        let Some(length) = kept.filter(|&length| length <= LONGEST_VALUE) else {
            if length > LONGEST_SKIP {
                return Err(Nonsense::new(format!("a value of {length} bytes")));
            }
            bytes.advance(end + 1);
            self.skipping = Some((meta, length + 2));
            return Ok(self.skip(bytes));
        };
        let Some(value) = bytes.get(end + 1..end + 1 + length + 2) else {
            return Ok(None);
        };
        let Some(value) = value.strip_suffix(b"\r\n") else {
            return Err(Nonsense::new("a value that is longer than it says"));
        };
        meta.value = Some(Value::from_slice(value));
        bytes.advance(end + 1 + length + 2);
        Ok(Some(Reply::Meta(meta)))
    }

    fn skip(&mut self, bytes: &mut BytesMut) -> Option<Reply> {
        let (meta, mut left) = self.skipping.take()?;
        let here = u64::try_from(bytes.len()).unwrap_or(u64::MAX).min(left);
        bytes.advance(usize::try_from(here).unwrap_or(0));
        left -= here;
        if left > 0 {
            self.skipping = Some((meta, left));
            return None;
        }
        Some(Reply::Meta(meta))
    }
}

/// Reads a line; and how long the value is that follows it.
fn header(line: &[u8]) -> Result<(Reply, Option<u64>), Nonsense> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut words = line.split(|&byte| byte == b' ');
    let code = match words.next() {
        Some(b"HD") => Code::Done,
        Some(b"VA") => Code::Value,
        Some(b"EN") => Code::Miss,
        Some(b"NF") => Code::NotFound,
        Some(b"NS") => Code::NotStored,
        Some(b"EX") => Code::Exists,
        Some(b"MN") => Code::NoOp,
        Some(b"CLIENT_ERROR" | b"SERVER_ERROR" | b"ERROR") => {
            return Ok((Reply::Error(text(line)), None));
        }
        Some(b"VERSION") => {
            let version = words.next().unwrap_or_default();
            return Ok((Reply::Version(text(version)), None));
        }
        _ => {
            let start = text(&line[..line.len().min(40)]);
            return Err(Nonsense::new(format!("{start:?}")));
        }
    };
    let length = match code {
        Code::Value => match words.next().and_then(number) {
            Some(length) => Some(length),
            None => return Err(Nonsense::new("a value of no length")),
        },
        _ => None,
    };
    let mut meta = Meta {
        code,
        value: None,
        cas: None,
        ttl: None,
        opaque: None,
    };
    for flag in words {
        let wrong = || Nonsense::new(format!("the flag {:?}", text(&flag[..flag.len().min(40)])));
        match flag {
            [] => {}
            [b'c', token @ ..] => meta.cas = Some(number(token).ok_or_else(wrong)?),
            [b'O', token @ ..] => meta.opaque = Some(number(token).ok_or_else(wrong)?),
            [b't', b'-', token @ ..] => {
                meta.ttl = number(token).ok_or_else(wrong).map(|_| Some(-1))?
            }
            [b't', token @ ..] => {
                let seconds = number(token).ok_or_else(wrong)?;
                meta.ttl = Some(i64::try_from(seconds).unwrap_or(i64::MAX));
            }
            // Others say that an item is stale, or was won: nothing that was asked.
            _ => {}
        }
    }
    Ok((Reply::Meta(meta), length))
}

/// Digits, and nothing but digits.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit < 10)?;
        value.checked_mul(10)?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(input: &[u8]) -> Result<Vec<Reply>, Nonsense> {
        let (mut parser, mut bytes) = (Parser::default(), BytesMut::from(input));
        let mut replies = Vec::new();
        while let Some(reply) = parser.next(&mut bytes)? {
            replies.push(reply);
        }
        Ok(replies)
    }

    fn meta(code: Code, value: Option<&[u8]>, flags: [Option<u64>; 3]) -> Reply {
        let [cas, ttl, opaque] = flags;
        Reply::Meta(Meta {
            code,
            value: value.map(Value::from_slice),
            cas,
            ttl: ttl.map(u64::cast_signed),
            opaque,
        })
    }

    #[test]
    fn replies_are_read_with_their_flags() {
        let input =
            b"VA 2 t61 c7 O12\r\n42\r\nHD c3 O18\r\nEN O1\r\nNF\r\nNS c0\r\nEX O9\r\nMN\r\n\
            VERSION 1.6.18\r\nCLIENT_ERROR bad data chunk\r\nVA 0 t-1 W\r\n\r\n";
        let minus_one = Some((-1_i64).cast_unsigned());
        assert_eq!(
            all(input).unwrap(),
            [
                meta(Code::Value, Some(b"42"), [Some(7), Some(61), Some(12)]),
                meta(Code::Done, None, [Some(3), None, Some(18)]),
                meta(Code::Miss, None, [None, None, Some(1)]),
                meta(Code::NotFound, None, [None; 3]),
                meta(Code::NotStored, None, [Some(0), None, None]),
                meta(Code::Exists, None, [None, None, Some(9)]),
                meta(Code::NoOp, None, [None; 3]),
                Reply::Version("1.6.18".to_owned()),
                Reply::Error("CLIENT_ERROR bad data chunk".to_owned()),
                meta(Code::Value, Some(b""), [None, minus_one, None]),
            ]
        );
    }

    #[test]
    fn what_is_not_the_protocol_is_said_to_be_so() {
        for input in [
            &b"HD\n"[..],
            b"OK\r\n",
            b"\r\n",
            b"VA\r\n",
            b"VA x\r\n",
            b"VA -1\r\n",
            b"VA 1 t5\r\n12\r\n",
            b"HD c\r\n",
            b"HD Ox\r\n",
            b"HD t18446744073709551616\r\n",
            b"VA 99999999999\r\n",
            &[b'x'; 3000],
        ] {
            assert!(all(input).is_err(), "{}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn a_value_that_is_too_long_is_skipped_and_the_next_reply_is_read() {
        let (mut parser, mut bytes) = (Parser::default(), BytesMut::new());
        bytes.extend_from_slice(b"VA 100000 O1\r\n");
        for _ in 0..100 {
            assert_eq!(parser.next(&mut bytes), Ok(None));
            bytes.extend_from_slice(&[b'\n'; 1000]);
        }
        bytes.extend_from_slice(b"\r\nHD O2\r\n");
        let skipped = meta(Code::Value, None, [None, None, Some(1)]);
        assert_eq!(parser.next(&mut bytes), Ok(Some(skipped)));
        let next = meta(Code::Done, None, [None, None, Some(2)]);
        assert_eq!(parser.next(&mut bytes), Ok(Some(next)));
        assert!(bytes.is_empty());
    }

    /// Bytes that look like replies, and some that do not.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"HD O1\r\n".to_vec()),
            Just(b"VA 3 c1 O2\r\nabc\r\n".to_vec()),
            Just(b"VA 20000 O3\r\n".to_vec()),
            Just(b"EN\r\n".to_vec()),
            Just(b"VA ".to_vec()),
            Just(b"\r\n".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..40),
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        /// No bytes make it panic, and the same replies come out however the bytes are cut.
        #[test]
        fn any_bytes_are_read_the_same_in_any_pieces(input in stream(), cuts in proptest::collection::vec(1..50_usize, 0..40)) {
            let whole = {
                let (mut parser, mut bytes) = (Parser::default(), BytesMut::from(&input[..]));
                read(&mut parser, &mut bytes)
            };
            let (mut parser, mut bytes) = (Parser::default(), BytesMut::new());
            let (mut replies, mut failed, mut rest) = (Vec::new(), false, &input[..]);
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                bytes.extend_from_slice(now);
                rest = later;
                let (more, wrong) = read(&mut parser, &mut bytes);
                replies.extend(more);
                failed = wrong;
                if failed {
                    break;
                }
            }
            prop_assert_eq!((replies, failed), whole);
        }
    }

    fn read(parser: &mut Parser, bytes: &mut BytesMut) -> (Vec<Reply>, bool) {
        let mut replies = Vec::new();
        loop {
            match parser.next(bytes) {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => return (replies, false),
                Err(_) => return (replies, true),
            }
        }
    }
}
