use std::fmt;

use bytes::{Buf, BytesMut};
use smallvec::SmallVec;

/// The longest line that a server sends.
const LONGEST_LINE: usize = 2048;

/// The longest value that is read, in bytes: that of a `CasBackend`.
pub(super) const LONGEST_VALUE: usize = 96 << 10;

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
mod tests;
