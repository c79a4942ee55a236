use std::{fmt, sync::Arc};

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::target::{Address, address};
use crate::backend::BackendError;

/// Why there is no answer to a call.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// In words; the same for all that went out together.
    Error(Arc<str>),
    /// There is no connection, and why.
    NotConnected(Arc<str>),
    /// Another server has the slot, from now on.
    Moved(Address),
    /// Another server has these keys, while the slot moves.
    Ask(Address),
    /// The slot is moving, and some of the keys are here and some there.
    TryAgain,
}

impl Failure {
    pub(super) fn new(error: impl fmt::Display) -> Self {
        Self::Error(error.to_string().into())
    }
}

impl From<&RedisError> for Failure {
    fn from(error: &RedisError) -> Self {
        let to = error.redirect_node().and_then(|(node, _)| address(node, 0));
        match (error.kind(), to) {
            (ErrorKind::Server(ServerErrorKind::Moved), Some(to)) => Self::Moved(to),
            (ErrorKind::Server(ServerErrorKind::Ask), Some(to)) => Self::Ask(to),
            (ErrorKind::Server(ServerErrorKind::TryAgain), _) => Self::TryAgain,
            _ => Self::new(error),
        }
    }
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Error(text) => Self::new(text.to_string()),
            Failure::NotConnected(why) => Self::new(format!("no connection to Redis: {why}")),
            // In a Cluster these are followed.
            Failure::Moved(to) | Failure::Ask(to) => Self::new(format!(
                "the key is at {to}, since this is a Cluster, which needs a URL of redis-cluster://"
            )),
            Failure::TryAgain => Self::new("some of the keys have moved, and some have not"),
        }
    }
}
