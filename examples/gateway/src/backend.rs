//! The backend that counts the limits: this process, or a server that a fleet shares.

use std::error::Error;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use tower::BoxError;
use tower_dist_ratelimit::backend::{Backend, BackendError, Memory};
use tower_dist_ratelimit_memcached::Memcached;
use tower_dist_ratelimit_redis::{ConnectError, Redis};

use crate::redis_server::RedisServer;

/// The value of `--backend`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// A Redis server that the gateway starts for itself.
    OwnRedis,
    Given(BackendUrl),
}

impl Choice {
    /// Starts the gateway's own server, if that is the choice. The server ends when it is dropped.
    pub(crate) async fn start(&self) -> Result<(BackendUrl, Option<RedisServer>), BoxError> {
        match self {
            Self::Given(url) => Ok((url.clone(), None)),
            Self::OwnRedis => {
                let server = RedisServer::start().await?;
                let server = server.ok_or(
                    "--backend redis needs redis-server on the PATH (apt install redis-server, brew install redis)",
                )?;
                Ok((BackendUrl::Redis(server.url()), Some(server)))
            }
        }
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "redis" => Ok(Self::OwnRedis),
            text => text.parse().map(Self::Given),
        }
    }
}

/// Where the limits are counted.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum BackendUrl {
    Memory,
    /// The URL of a server, a Cluster or sentinels.
    Redis(String),
    /// The URL of one server or several.
    Memcached(String),
}

const EXPECTED: &str = "expected memory, redis, or the URL of a backend: redis://host:port, \
    redis-cluster://host:port,.., redis-sentinel://host:port,../name \
    (rediss: encrypted) or memcached://host:port,..";

impl BackendUrl {
    /// The kind of backend, in one word.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis(_) => "redis",
            Self::Memcached(_) => "memcached",
        }
    }

    /// The text from the command line.
    pub(crate) fn argument(&self) -> &str {
        match self {
            Self::Memory => "memory",
            Self::Redis(url) | Self::Memcached(url) => url,
        }
    }

    /// Connects now.
    pub(crate) async fn connect(&self) -> Result<Connected, NoBackend> {
        match self {
            Self::Memory => Ok(Connected::Memory(Arc::default())),
            Self::Redis(url) => match Redis::connect(url).await {
                Ok(redis) => Ok(Connected::Redis(Arc::new(redis))),
                Err(error) => Err(NoBackend {
                    error,
                    command: "redis-server --port N",
                    is_encrypted: url.starts_with("rediss"),
                }),
            },
            Self::Memcached(url) => match Memcached::connect(url).await {
                Ok(memcached) => Ok(Connected::Memcached(Arc::new(memcached))),
                Err(error) => Err(NoBackend {
                    error,
                    command: "memcached -p N",
                    is_encrypted: false,
                }),
            },
        }
    }

    /// Connects in the background, without a time limit.
    pub(crate) fn connect_lazy(&self) -> Result<Connected, ConnectError> {
        Ok(match self {
            Self::Memory => Connected::Memory(Arc::default()),
            Self::Redis(url) => Connected::Redis(Arc::new(Redis::connect_lazy(url)?)),
            Self::Memcached(url) => Connected::Memcached(Arc::new(Memcached::connect_lazy(url)?)),
        })
    }
}

/// A backend in use.
pub(crate) enum Connected {
    Memory(Arc<Memory>),
    Redis(Arc<Redis>),
    Memcached(Arc<Memcached>),
}

impl Connected {
    /// The backend for a layer.
    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Self::Memory(memory) => memory.clone(),
            Self::Redis(redis) => redis.clone(),
            Self::Memcached(memcached) => memcached.clone(),
        }
    }

    /// Waits at most `limit` for the refunds in progress, which end with the runtime.
    pub(crate) async fn finish_corrections(&self, limit: Duration) -> Result<(), BackendError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.finish_corrections(limit).await,
            Self::Memcached(memcached) => memcached.finish_corrections(limit).await,
        }
    }
}

/// The reason why a backend cannot be used.
#[derive(Debug)]
pub(crate) struct NoBackend {
    error: ConnectError,
    /// The command that starts a server of this kind.
    command: &'static str,
    /// Whether the URL asks for TLS.
    is_encrypted: bool,
}

impl NoBackend {
    fn kind(&self) -> Option<io::ErrorKind> {
        let source = self.error.source()?;
        source.downcast_ref().map(io::Error::kind)
    }

    /// Whether no server is reachable. Other errors concern settings or an unsuitable server.
    pub(crate) fn is_down(&self) -> bool {
        match self.kind() {
            Some(kind) => !is_of_tls(kind),
            None => self.is_timeout() && !self.is_encrypted,
        }
    }

    /// The server accepts connections and does not answer. Such an error has no source.
    fn is_timeout(&self) -> bool {
        self.error.to_string().contains(": no answer within ")
    }

    /// Whether the server may not encrypt. A Redis server without TLS often waits for more after the first message of
    /// TLS, because that contains no end of a line. The attempt to connect then times out.
    fn may_lack_tls(&self) -> bool {
        match self.kind() {
            Some(kind) => is_of_tls(kind),
            None => self.is_timeout() && self.is_encrypted,
        }
    }
}

/// Whether TLS reports an unencrypted server or an unsuitable certificate.
fn is_of_tls(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
    )
}

/// Suggests a remedy if the error does not name one.
impl fmt::Display for NoBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, command, .. } = self;
        write!(f, "--backend: {error}")?;
        match self.kind() {
            _ if self.may_lack_tls() => f.write_str(
                "; rediss:// is for a server that encrypts, with a certificate that this machine trusts; \
                 for one that does not encrypt it is redis://",
            ),
            None => Ok(()),
            Some(_) => write!(
                f,
                "; start it there (one server to try: {command}), \
                 or leave --backend out to count in this process"
            ),
        }
    }
}

impl Error for NoBackend {}

impl FromStr for BackendUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            None if text == "memory" => Ok(Self::Memory),
            // The connection parses the rest, and its errors name the fault.
            Some((scheme, _)) if scheme.starts_with("redis") => Ok(Self::Redis(text.to_owned())),
            Some(("memcached", _)) => Ok(Self::Memcached(text.to_owned())),
            _ => Err(EXPECTED.to_owned()),
        }
    }
}

/// Prints the URL without the password.
impl fmt::Display for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Redis(url) | Self::Memcached(url) => match url.split_once("://") {
                Some((scheme, rest)) => {
                    let hosts = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
                    write!(f, "{scheme}://{hosts}")
                }
                None => f.write_str(url),
            },
        }
    }
}

impl fmt::Debug for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackendUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_memory_or_a_url_with_a_known_scheme() {
        assert_eq!("memory".parse(), Ok(BackendUrl::Memory));
        for url in [
            "redis://a",
            "rediss://a",
            "redis-cluster://a,b:1,c",
            "redis-sentinel://a,b/name",
        ] {
            assert_eq!(url.parse(), Ok(BackendUrl::Redis(url.to_owned())));
        }
        let url = "memcached://a,b:1";
        assert_eq!(url.parse(), Ok(BackendUrl::Memcached(url.to_owned())));
        for bad in [
            "",
            "Memory",
            "memcached",
            "memcacheds://a",
            "redis",
            "a:6379",
            "http://a",
            "://a",
        ] {
            let error = bad.parse::<BackendUrl>().unwrap_err();
            assert!(error.contains("redis://host:port"), "{bad}: {error}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let store: BackendUrl = "redis-cluster://user:p@ss@a:1,b/0".parse().unwrap();
        assert_eq!(store.to_string(), "redis-cluster://a:1,b/0");
        assert_eq!(format!("{store:?}"), "BackendUrl(redis-cluster://a:1,b/0)");
    }
}
