use std::net::IpAddr;

use smallvec::{SmallVec, smallvec};

use super::node::address;

/// The addresses in one line of the header, from left to right. `None` is an entry without an address.
type Hops = SmallVec<[Option<IpAddr>; 4]>;

/// Reads one line of `Forwarded` (RFC 7239).
///
/// A line that cannot be parsed counts as one entry without an address. Otherwise a client could hide the entry of a
/// trusted proxy behind an open quote.
pub(super) fn hops(line: &[u8]) -> Hops {
    Unread(line).hops().unwrap_or(smallvec![None])
}

/// The unread rest of a line.
struct Unread<'a>(&'a [u8]);

impl<'a> Unread<'a> {
    fn hops(mut self) -> Option<Hops> {
        let mut hops = SmallVec::new();
        loop {
            // Lists may have empty elements (RFC 9110, section 5.6.1).
            self.skip_spaces();
            if self.0.is_empty() {
                return Some(hops);
            }
            if !self.take(b',') {
                hops.push(self.element()?);
                self.skip_spaces();
                if !self.0.is_empty() && !self.take(b',') {
                    return None;
                }
            }
        }
    }

    /// Reads an element such as `for=192.0.2.1;proto=https`. Returns `Some(None)` for an element without an address,
    /// and `None` if parsing fails.
    fn element(&mut self) -> Option<Option<IpAddr>> {
        let mut hop = None;
        loop {
            let name = self.token()?;
            self.take(b'=').then_some(())?;
            let value = self.value()?;
            if name.eq_ignore_ascii_case(b"for") && hop.replace(address(&value)).is_some() {
                return None;
            }
            self.skip_spaces();
            if !self.take(b';') {
                return Some(hop.flatten());
            }
            self.skip_spaces();
        }
    }

    fn value(&mut self) -> Option<SmallVec<[u8; 64]>> {
        if !self.take(b'"') {
            return self.token().map(SmallVec::from_slice);
        }
        let mut value = SmallVec::new();
        loop {
            match self.next()? {
                b'"' => return Some(value),
                b'\\' => value.push(self.next()?),
                byte => value.push(byte),
            }
        }
    }

    /// Reads a token of at least one character (RFC 9110, section 5.6.2). Also accepts colons and brackets, because
    /// some addresses lack their quotes.
    fn token(&mut self) -> Option<&'a [u8]> {
        let of_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:[]".contains(&byte);
        let end = self.0.iter().position(|&byte| !of_token(byte));
        let (token, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        (!token.is_empty()).then_some(token)
    }

    fn skip_spaces(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }

    fn next(&mut self) -> Option<u8> {
        self.0.split_off_first().copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
}
