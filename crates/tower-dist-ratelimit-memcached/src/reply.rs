use std::fmt;

use bytes::{Buf, BytesMut};
use smallvec::SmallVec;

/// The longest accepted line, in bytes. A longer one ends the connection.
const LONGEST_LINE: usize = 2048;

/// The longest value that is read, in bytes: the longest value of a `CasBackend`.
pub(super) const LONGEST_VALUE: usize = 96 << 10;

/// The longest value that is skipped, in bytes: the largest item size that a server can be configured with.
const LONGEST_SKIP: u64 = 1 << 30;

/// The outcome of a meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// `HD`: done.
    Done,
    /// `VA`: done, and the value follows.
    Value,
    /// `EN`: there is no item to read.
    Miss,
    /// `NF`: there is no item to change.
    NotFound,
    /// `NS`: the item exists, so it was not added.
    NotStored,
    /// `EX`: the item has another version than expected.
    Exists,
    /// The item's value is no number, so nothing was added to it.
    NoNumber,
}

/// A server's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Meta(Meta),
    /// The server's error line about a command.
    Error(String),
    /// The server's version.
    Version(String),
}

/// The reply to a meta command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) code: Code,
    /// The value, if the reply has one. Also `None` if the value is longer than any value of this crate.
    pub(super) value: Option<Value>,
    pub(super) cas: Option<u64>,
    /// Remaining time to live in seconds; negative if the item does not expire.
    pub(super) ttl: Option<i64>,
    pub(super) opaque: Option<u64>,
}

pub(super) type Value = SmallVec<[u8; 64]>;

impl Meta {
    pub(super) fn new(code: Code) -> Self {
        Self {
            code,
            value: None,
            cas: None,
            ttl: None,
            opaque: None,
        }
    }
}

/// Reads replies from bytes that arrive in pieces.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// Bytes to drop before the next reply: the rest of a value that is too long.
    skip: u64,
}

impl Parser {
    /// Takes the next reply out of `bytes`. Returns `None` until the reply is complete. If a value has more than
    /// [`LONGEST_VALUE`] and at most [`LONGEST_SKIP`] bytes, its reply is complete after the first line, and later
    /// calls drop the value.
    ///
    /// After an error the following bytes cannot be read either, so the connection is useless.
    pub(super) fn next(&mut self, bytes: &mut BytesMut) -> Result<Option<Reply>, String> {
        self.read(bytes).map_err(violation)
    }

    fn read(&mut self, bytes: &mut BytesMut) -> Result<Option<Reply>, String> {
        let dropped = usize::try_from(self.skip)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        bytes.advance(dropped);
        self.skip -= dropped as u64;
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
            // One byte more for the `\r` of the longest line.
            return if bytes.len() <= LONGEST_LINE + 1 {
                Ok(None)
            } else {
                Err("a line without an end".to_owned())
            };
        };
        let line = bytes[..end].strip_suffix(b"\r");
        let line = line.filter(|line| line.len() <= LONGEST_LINE);
        let (mut reply, length) = header(line.ok_or("a line that is too long, or ends in LF")?)?;
        let mut taken = end + 1;
        if let (Reply::Meta(meta), Some(length)) = (&mut reply, length) {
            if length > LONGEST_SKIP {
                return Err(format!("a value of {length} bytes"));
            }
            let kept = usize::try_from(length).unwrap_or(usize::MAX);
            if kept > LONGEST_VALUE {
                self.skip = length + 2;
            } else {
                let Some(value) = bytes.get(taken..taken + kept + 2) else {
                    return Ok(None);
                };
                let value = value.strip_suffix(b"\r\n");
                meta.value = Some(value.ok_or("a value that is longer than stated")?.into());
                taken += kept + 2;
            }
        }
        bytes.advance(taken);
        Ok(Some(reply))
    }
}

/// Returns the error text about a server that violates the protocol.
pub(super) fn violation(what: impl fmt::Display) -> String {
    format!("the server does not speak the protocol: {what}")
}

/// Reads the first line of a reply. Also returns the length of the value that follows the line, if any.
fn header(line: &[u8]) -> Result<(Reply, Option<u64>), String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut words = line.split(|&byte| byte == b' ');
    let code = match words.next() {
        Some(b"HD") => Code::Done,
        Some(b"VA") => Code::Value,
        Some(b"EN") => Code::Miss,
        Some(b"NF") => Code::NotFound,
        Some(b"NS") => Code::NotStored,
        Some(b"EX") => Code::Exists,
        Some(b"CLIENT_ERROR" | b"SERVER_ERROR" | b"ERROR") => {
            return Ok((Reply::Error(text(line)), None));
        }
        Some(b"VERSION") => {
            let version = words.next().unwrap_or_default();
            return Ok((Reply::Version(text(version)), None));
        }
        _ => return Err(format!("{:?}", text(&line[..line.len().min(40)]))),
    };
    let length = match code {
        Code::Value => Some(
            words
                .next()
                .and_then(number)
                .ok_or("a value without a length")?,
        ),
        _ => None,
    };
    let mut meta = Meta::new(code);
    for flag in words {
        let Some((name, token)) = flag.split_first() else {
            continue;
        };
        let number = |token| {
            let wrong = || format!("the flag {:?}", text(&flag[..flag.len().min(40)]));
            number(token).ok_or_else(wrong)
        };
        match (name, token) {
            (b'c', token) => meta.cas = Some(number(token)?),
            (b'O', token) => meta.opaque = Some(number(token)?),
            (b't', [b'-', token @ ..]) => meta.ttl = Some(number(token).map(|_| -1)?),
            (b't', token) => {
                meta.ttl = Some(i64::try_from(number(token)?).unwrap_or(i64::MAX));
            }
            // This crate requests no other flags, so it ignores them.
            _ => {}
        }
    }
    Ok((Reply::Meta(meta), length))
}

/// Reads a number that consists of digits only. Returns `None` for any other text, and for a number above `u64::MAX`.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(text).ok()?.parse().ok())?
}

#[cfg(test)]
mod tests;
