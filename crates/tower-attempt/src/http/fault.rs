//! What an error of a client proves. It is found by downcast, first of the error itself and then of
//! what it names as its source; an error that is not known proves nothing.

#[cfg(feature = "hyper-util-01")]
pub(crate) mod hyper;

use std::error::Error;
use std::io;

use crate::errors::chain;
use crate::{Attempt, AttemptKind, Interrupted, Rejected, Verdict};

/// The kinds of errors that the rules tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "hyper-util-01"),
    expect(dead_code, reason = "found in a client's errors")
)]
pub(crate) enum Fault {
    /// The server did not process the request, and another connection probably serves it: a pooled
    /// connection closed before the request was written, or HTTP/2's REFUSED_STREAM (RFC 9113 §8.7) or
    /// GOAWAY (§6.8) says so.
    Unprocessed,
    /// The client could not connect, so the request was not sent.
    NotConnected,
    /// A layer of this process rejected the request, so it was not sent.
    Rejected(Rejected),
    /// The request's own body failed, and a resend would meet the same failure.
    Local,
    /// The server ended the HTTP/2 stream with this error code (RFC 9113 §7).
    Reset(u32),
    /// The connection broke; how far the server got is not known.
    Disconnected,
    /// Anything else.
    Unknown,
}

impl Fault {
    /// Of a client that may follow redirects, whose errors prove nothing about the request that it was
    /// given, or of one that does not.
    #[cold]
    pub(crate) fn of<E: 'static>(error: &E, follows_redirects: bool) -> Self {
        let mut fault = Self::Unknown;
        for error in chain(error) {
            match Self::of_one(error) {
                Self::Unknown => {}
                // Of which request, if it was redirected, the error does not say.
                Self::Unprocessed | Self::NotConnected if follows_redirects => {
                    return Self::Disconnected;
                }
                // What lies deeper may know better why.
                Self::Disconnected => fault = Self::Disconnected,
                found => return found,
            }
        }
        fault
    }

    /// The verdict on an attempt with this error; `other` if the error does not say whether the server processed it.
    pub(crate) fn verdict(self, attempt: &Attempt, other: Verdict) -> Verdict {
        match self {
            Self::Unprocessed => Verdict::Unprocessed,
            Self::NotConnected => Verdict::not_sent(),
            Self::Rejected(rejected) => rejected.verdict(attempt),
            // A hedge that was never sent, or that was interrupted, has no outcome.
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
            // Only connecting can be refused.
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
