//! What an error of a client proves. It is found by downcast, first of the error itself and then of
//! what it names as its source; an error that is not known proves nothing.

use std::error::Error;
use std::io;

use h2::Reason;

use super::client_error;
use crate::errors::chain;
use crate::{Interrupted, Rejected};

/// The kinds of errors that the rules tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// The server ended the HTTP/2 stream for this reason.
    Reset(Reason),
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

    fn of_one(error: &(dyn Error + 'static)) -> Self {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return Self::of_h2(error);
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Self::of_io(error);
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            return Self::of_hyper(error);
        }
        if client_error::is_connect(error) {
            return Self::NotConnected;
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

    fn of_h2(error: &h2::Error) -> Self {
        match error.reason() {
            Some(Reason::REFUSED_STREAM) if error.is_remote() && error.is_reset() => {
                Self::Unprocessed
            }
            // It reaches streams above the last one that the server took only; those below it live on.
            Some(Reason::NO_ERROR) if error.is_remote() && error.is_go_away() => Self::Unprocessed,
            Some(reason) if error.is_remote() && error.is_reset() => Self::Reset(reason),
            // Reset by who sends the body, as it failed.
            Some(_) if error.is_reset() && !error.is_remote() && !error.is_library() => Self::Local,
            _ => Self::Disconnected,
        }
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

    fn of_hyper(error: &hyper::Error) -> Self {
        if error.is_user() {
            Self::Local
        } else if error.is_canceled() {
            // hyper's word for a request that it never began to write.
            Self::Unprocessed
        } else if error.is_closed() || error.is_incomplete_message() {
            Self::Disconnected
        } else {
            Self::Unknown
        }
    }
}

#[cfg(test)]
mod tests;
