use std::{fmt, sync::Arc};

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tower_dist_ratelimit::backend::BackendError;

use super::target::Address;

/// The reason why a call failed.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// An error message, usually shared by all requests of the call.
    Error(Arc<str>),
    /// There was no connection, or it ended before the answer, or the node has no connection to its Cluster. The text
    /// states why.
    NotConnected(Arc<str>),
    /// The slot has moved to the node at this address. An empty host means the host of the node that answered.
    Moved(Address),
    /// The slot is moving to the node at this address, and the node that answered does not have all of the call's keys.
    /// An empty host means the host of the node that answered.
    Ask(Address),
    /// The slot is moving, and the node that answered does not have all of the call's keys.
    TryAgain,
    /// The call was not sent, because the send queue is full.
    Full,
}

impl Failure {
    pub(super) fn new(error: impl fmt::Display) -> Self {
        Self::Error(error.to_string().into())
    }
}

impl From<&RedisError> for Failure {
    fn from(error: &RedisError) -> Self {
        let to = error.redirect_node().and_then(|(node, _)| redirect(node));
        match (error.kind(), to) {
            (ErrorKind::Server(ServerErrorKind::Moved), Some(to)) => Self::Moved(to),
            (ErrorKind::Server(ServerErrorKind::Ask), Some(to)) => Self::Ask(to),
            (ErrorKind::Server(ServerErrorKind::TryAgain), _) => Self::TryAgain,
            (ErrorKind::Server(ServerErrorKind::ClusterDown), _) => {
                Self::NotConnected(error.to_string().into())
            }
            _ => Self::new(error),
        }
    }
}

/// Parses `host:port`. A Cluster that hides its nodes' hosts writes `:port` or `?:port`. The address then has an empty
/// host.
fn redirect(node: &str) -> Option<Address> {
    let unnamed = node.strip_prefix('?').unwrap_or(node).strip_prefix(':');
    let port = unnamed.and_then(|port| port.parse().ok());
    let unnamed = port.map(|port| Address {
        host: String::new(),
        port,
    });
    unnamed.or_else(|| Address::parse(node, 0))
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Error(text) => Self::new(text.to_string()),
            Failure::NotConnected(why) => Self::new(format!("no connection to Redis: {why}")),
            // With a URL of a Cluster, the backend follows redirects. So this backend has no such URL.
            Failure::Moved(to) | Failure::Ask(to) => Self::new(format!(
                "the key is at {to}, since this is a Cluster, which needs a URL of redis-cluster://"
            )),
            Failure::TryAgain => Self::busy("some of the keys have moved, and some have not"),
            Failure::Full => Self::busy("too many requests wait already"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirected(answer: &str) -> (String, u16) {
        let answer = redis::parse_redis_value(answer.as_bytes()).unwrap();
        match Failure::from(&answer.extract_error().unwrap_err()) {
            Failure::Moved(to) | Failure::Ask(to) => (to.host, to.port),
            failure => panic!("{failure:?}"),
        }
    }

    #[test]
    fn a_redirect_names_a_host_and_a_port_or_only_a_port() {
        for (answer, host) in [
            ("-MOVED 3999 10.0.0.1:6381\r\n", "10.0.0.1"),
            ("-ASK 3999 node.internal:6381\r\n", "node.internal"),
            ("-MOVED 3999 ::1:6381\r\n", "::1"),
            ("-MOVED 3999 :6381\r\n", ""),
            ("-ASK 3999 :6381\r\n", ""),
            ("-MOVED 3999 ?:6381\r\n", ""),
        ] {
            assert_eq!(redirected(answer), (host.to_owned(), 6381), "{answer}");
        }
    }

    #[test]
    fn each_failure_has_a_message_that_names_its_cause() {
        let node = || Address::parse("a:1", 0).unwrap();
        let cluster =
            "the key is at a:1, since this is a Cluster, which needs a URL of redis-cluster://";
        for (failure, says) in [
            (Failure::new("out of memory"), "out of memory"),
            (
                Failure::NotConnected("it was closed".into()),
                "no connection to Redis: it was closed",
            ),
            (Failure::Moved(node()), cluster),
            (Failure::Ask(node()), cluster),
            (
                Failure::TryAgain,
                "some of the keys have moved, and some have not",
            ),
            (Failure::Full, "too many requests wait already"),
        ] {
            let error = BackendError::from(failure);
            let expected = format!("the rate limit's backend did not decide: {says}");
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn only_a_call_that_was_not_executed_by_a_working_server_is_busy() {
        let node = || Address::parse("a:1", 0).unwrap();
        for (failure, is_busy) in [
            (Failure::Full, true),
            (Failure::TryAgain, true),
            (Failure::new("out of memory"), false),
            (Failure::NotConnected("it was closed".into()), false),
            (Failure::Moved(node()), false),
            (Failure::Ask(node()), false),
        ] {
            let error = BackendError::from(failure);
            assert_eq!(error.is_busy(), is_busy, "{error}");
        }
    }
}
