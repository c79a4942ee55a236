//! Classifies the errors of clients: does an error prove that the server did not process the request?
//!
//! Downcasts the error, and then its sources, to the known types. An unknown error proves nothing.

#[cfg(feature = "hyper-util-01")]
pub(crate) mod hyper;

use std::error::Error;
use std::io;

use crate::errors::chain;
use crate::{Attempt, AttemptKind, Interrupted, Rejected, Verdict};

/// The kinds of errors that the rules distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "hyper-util-01"),
    expect(dead_code, reason = "found in a client's errors")
)]
pub(crate) enum Fault {
    /// The server did not process the request, and another connection probably serves it.
    ///
    /// Either hyper cancelled the request before the first byte was written, or the server sent HTTP/2's REFUSED_STREAM
    /// (RFC 9113 §8.7) or a GOAWAY without an error (§6.8).
    Unprocessed,
    /// The client could not connect, so the request was not sent.
    NotConnected,
    /// A layer of this process rejected the request, so it was not sent.
    Rejected(Rejected),
    /// This process caused the error, usually because the request's own body failed. A resend would probably fail the
    /// same way.
    Local,
    /// The server ended the HTTP/2 stream with this error code (RFC 9113 §7).
    Reset(u32),
    /// Usually, the connection broke. Or the client follows redirects, and its error does not show which request
    /// failed. In both cases, the server may have processed the request.
    Disconnected,
    /// Anything else.
    Unknown,
}

impl Fault {
    /// Classifies an error. If the client follows redirects, its errors prove nothing about the original request.
    #[cold]
    pub(crate) fn of<E: 'static>(error: &E, follows_redirects: bool) -> Self {
        let mut fault = Self::Unknown;
        for error in chain(error) {
            match Self::of_one(error) {
                Self::Unknown => {}
                // The error does not name the request that failed.
                Self::Unprocessed | Self::NotConnected if follows_redirects => {
                    return Self::Disconnected;
                }
                // A source of this error may name a more precise fault.
                Self::Disconnected => fault = Self::Disconnected,
                found => return found,
            }
        }
        fault
    }

    /// Returns the verdict on an attempt with this error: `other` for a reset stream, a broken connection and an
    /// unknown error.
    pub(crate) fn verdict(self, attempt: &Attempt, other: Verdict) -> Verdict {
        match self {
            Self::Unprocessed => Verdict::Unprocessed,
            Self::NotConnected => Verdict::not_sent(),
            Self::Rejected(rejected) => rejected.verdict(attempt),
            // A hedge whose body failed or was interrupted must not end a call whose other attempts are in flight.
            Self::Local if attempt.kind() == AttemptKind::Hedge => Verdict::transient(),
            Self::Local => Verdict::Fatal,
            Self::Reset(_) | Self::Disconnected | Self::Unknown => other,
        }
    }

    fn of_one(error: &(dyn Error + 'static)) -> Self {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Self::of_io(error);
        }
        #[cfg(feature = "hyper-util-01")]
        if let Some(fault) = hyper::fault(error) {
            return fault;
        }
        #[cfg(feature = "tonic-014")]
        if error.is::<tonic::ConnectError>() {
            return Self::NotConnected;
        }
        if error.is::<Interrupted>() {
            return Self::Local;
        }
        Rejected::of_one(error).map_or(Self::Unknown, Self::Rejected)
    }

    fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            // A TCP connection is refused only while it is being opened, so the request was not sent.
            io::ErrorKind::ConnectionRefused => Self::NotConnected,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
            | io::ErrorKind::UnexpectedEof => Self::Disconnected,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
