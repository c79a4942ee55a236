//! The errors of hyper, h2 and hyper-util's client.
//!
//! The error of hyper-util's client exists only if a build enables hyper-util's feature `http1` or `http2`, as every
//! build with that client does. This crate must enable neither feature, because Cargo would enable it for all crates of
//! the build. So this module has a placeholder named [`Error`], and each function that names the error imports all
//! names of the client's module. If that module has an `Error`, the import hides the placeholder.

use std::any::Any;
// The placeholder for the client's error.
use std::convert::Infallible as Error;
use std::error;

use h2::Reason;

use super::Fault;

#[allow(dead_code, reason = "used where hyper-util has no client")]
trait IsConnect {
    fn is_connect(&self) -> bool;
}

impl IsConnect for Error {
    fn is_connect(&self) -> bool {
        match *self {}
    }
}

/// Returns the error, if it has one of the known types.
pub(crate) fn known(error: &dyn Any) -> Option<&(dyn error::Error + 'static)> {
    #[allow(unused_imports, reason = "empty where hyper-util has no client")]
    use hyper_util::client::legacy::*;
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return Some(error);
    }
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        return Some(error);
    }
    let error = error.downcast_ref::<Error>()?;
    Some(error)
}

/// Classifies an error of hyper, h2 or hyper-util's client. Returns `None` for an error of any other type.
///
/// Of the errors of hyper-util's client, classifies only a failed connection, and returns `None` for the others. The
/// sources of the others may show a fault.
pub(super) fn fault(error: &(dyn error::Error + 'static)) -> Option<Fault> {
    #[allow(unused_imports, reason = "empty where hyper-util has no client")]
    use hyper_util::client::legacy::*;
    if let Some(error) = error.downcast_ref() {
        return Some(of_h2(error));
    }
    if let Some(error) = error.downcast_ref() {
        return Some(of_hyper(error));
    }
    let is_connect = error.downcast_ref().is_some_and(Error::is_connect);
    is_connect.then_some(Fault::NotConnected)
}

fn of_h2(error: &h2::Error) -> Fault {
    match error.reason() {
        Some(Reason::REFUSED_STREAM) if error.is_remote() && error.is_reset() => Fault::Unprocessed,
        // A GOAWAY ends only the streams above the last one that the server accepted. So the server did not process
        // this request.
        Some(Reason::NO_ERROR) if error.is_remote() && error.is_go_away() => Fault::Unprocessed,
        Some(reason) if error.is_remote() && error.is_reset() => Fault::Reset(reason.into()),
        // The client reset the stream, usually because the request's own body failed.
        Some(_) if error.is_reset() && !error.is_remote() && !error.is_library() => Fault::Local,
        _ => Fault::Disconnected,
    }
}

fn of_hyper(error: &hyper::Error) -> Fault {
    if is_gone(error) || error.is_closed() || error.is_incomplete_message() {
        Fault::Disconnected
    } else if error.is_user() {
        Fault::Local
    } else if error.is_canceled() {
        // hyper cancelled the request before the first byte was written.
        Fault::Unprocessed
    } else {
        Fault::Unknown
    }
}

/// Returns whether hyper dropped the request together with the connection's task. hyper counts this as an error of the
/// user. But the request may have waited for a free stream of a connection that the server closed.
fn is_gone(error: &hyper::Error) -> bool {
    let source = error::Error::source(error).map(ToString::to_string);
    source.as_deref() == Some("runtime dropped the dispatch task")
}
