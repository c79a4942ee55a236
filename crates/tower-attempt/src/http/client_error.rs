//! The error of hyper-util's client.
//!
//! The type exists only where `http1` or `http2` of hyper-util is on. A build that uses the client has one of them. This
//! crate must enable neither, because Cargo would enable it for every server in the build, too. So each function below
//! imports all names of the client's module: where that module has an `Error`, it hides the [`Error`] of this module.

use std::any::Any;
use std::convert::Infallible;
use std::error;
use std::fmt;

/// Replaces the client's error in builds without it.
#[derive(Debug)]
#[allow(dead_code, reason = "used where hyper-util has no client")]
pub(crate) struct Error(Infallible);

#[allow(dead_code, reason = "used where hyper-util has no client")]
impl Error {
    fn is_connect(&self) -> bool {
        match self.0 {}
    }
}

impl fmt::Display for Error {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl error::Error for Error {}

/// The client's error, if this is one.
pub(crate) fn known(error: &dyn Any) -> Option<&(dyn error::Error + 'static)> {
    #[allow(unused_imports, reason = "empty where hyper-util has no client")]
    use hyper_util::client::legacy::*;
    let error = error.downcast_ref::<Error>()?;
    Some(error)
}

/// Whether the client could not connect.
pub(super) fn is_connect(error: &(dyn error::Error + 'static)) -> bool {
    #[allow(unused_imports, reason = "empty where hyper-util has no client")]
    use hyper_util::client::legacy::*;
    let error = error.downcast_ref::<Error>();
    error.is_some_and(Error::is_connect)
}
