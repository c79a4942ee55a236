use std::{fmt, sync::Arc};

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tower_dist_ratelimit::backend::BackendError;

use super::target::Address;

/// Why there is no answer to a call.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The message, which all requests of a call share.
    Error(Arc<str>),
    /// There is no connection, and why.
    NotConnected(Arc<str>),
    /// Another server has the slot from now on. Without a host, it is another port of the host that answered.
    Moved(Address),
    /// Another server has these keys while the slot moves. Without a host, it is another port of the host that answered.
    Ask(Address),
    /// The slot is moving, and the keys are on two servers.
    TryAgain,
    /// The call was not sent, because too many requests wait already.
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
            _ => Self::new(error),
        }
    }
}

/// Reads `host:port`. If a Cluster does not tell its nodes' hosts, it omits the host or writes `?`; the address then has no host.
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
            // A Cluster's backend follows redirects, so this server was not known to belong to a Cluster.
            Failure::Moved(to) | Failure::Ask(to) => Self::new(format!(
                "the key is at {to}, since this is a Cluster, which needs a URL of redis-cluster://"
            )),
            Failure::TryAgain => Self::new("some of the keys have moved, and some have not"),
            Failure::Full => Self::new("too many requests wait already"),
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
}
