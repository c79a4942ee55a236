//! What an error of a client proves. It is found by downcast, first of the error itself and then of
//! what it names as its source; an error that is not known proves nothing.

use std::any::Any;
use std::error::Error;
use std::fmt::{self, Write};
use std::io;

use h2::Reason;

use crate::Interrupted;

/// The kinds of errors that the rules tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server did not process the request, and another connection probably serves it: a pooled
    /// connection closed before the request was written, or HTTP/2's REFUSED_STREAM (RFC 9113 §8.7) or
    /// GOAWAY (§6.8) says so.
    Unprocessed,
    /// The client could not connect, so the request was not sent.
    NotConnected,
    /// It lies on this side, and a repeat would meet it again: the request's body failed, or tower's
    /// `LoadShed` or `Buffer` took no request.
    Local,
    /// The server ended the HTTP/2 stream for this reason.
    Reset(Reason),
    /// The connection broke; how far the server got is not known.
    Disconnected,
    /// Anything else.
    Unknown,
}

/// No chain of sources is longer, unless it is a ring.
const MAX_SOURCES: usize = 32;

/// How tower's errors read. They are told by their text, so that this crate needs no `tower`, with
/// features that nobody asked for; a test holds them against the real ones.
const TOWER: [&str; 2] = ["service overloaded", "buffer's worker closed unexpectedly"];

impl Fault {
    /// Of a client that may follow redirects, whose errors prove nothing about the request that it was
    /// given, or of one that does not.
    #[cold]
    pub(crate) fn of<E: 'static>(error: &E, follows_redirects: bool) -> Self {
        known(error).map_or(Self::Unknown, |error| {
            Self::among_sources(error, follows_redirects)
        })
    }

    fn among_sources(error: &(dyn Error + 'static), follows_redirects: bool) -> Self {
        let mut fault = Self::Unknown;
        let mut next = Some(error);
        for _ in 0..MAX_SOURCES {
            let Some(error) = next else { break };
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
            next = source(error);
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
        let connect = error.downcast_ref::<hyper_util::client::legacy::Error>();
        if connect.is_some_and(hyper_util::client::legacy::Error::is_connect) {
            return Self::NotConnected;
        }
        #[cfg(feature = "tonic-014")]
        if error.is::<tonic::ConnectError>() {
            return Self::NotConnected;
        }
        if error.is::<Interrupted>() || TOWER.iter().any(|text| reads(error, text)) {
            return Self::Local;
        }
        Self::Unknown
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

/// The errors that services are known to have.
fn known<E: 'static>(error: &E) -> Option<&(dyn Error + 'static)> {
    let error: &dyn Any = error;
    if let Some(error) = error.downcast_ref::<Box<dyn Error + Send + Sync>>() {
        return Some(&**error);
    }
    if let Some(error) = error.downcast_ref::<Box<dyn Error + Send>>() {
        return Some(&**error);
    }
    macro_rules! try_each {
        ($($known:ty),*) => {
            $(if let Some(error) = error.downcast_ref::<$known>() {
                return Some(error);
            })*
        };
    }
    try_each!(
        hyper_util::client::legacy::Error,
        hyper::Error,
        h2::Error,
        io::Error
    );
    #[cfg(feature = "reqwest-013")]
    try_each!(reqwest::Error);
    #[cfg(feature = "tonic-014")]
    try_each!(tonic::transport::Error, tonic::Status);
    None
}

/// An `io::Error` names the source of what it wraps, and not what it wraps.
fn source<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
    {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

/// Whether an error's text is just this; it is not written down for that.
fn reads(error: &dyn Error, text: &'static str) -> bool {
    let mut rest = Rest(text);
    write!(rest, "{error}").is_ok() && rest.0.is_empty()
}

/// What is still to come of a text.
struct Rest(&'static str);

impl Write for Rest {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
