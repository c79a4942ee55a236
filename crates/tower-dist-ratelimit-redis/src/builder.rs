use std::{fmt, sync::Arc, time::Duration};

use tower_dist_ratelimit::backend::toolkit::{ConnectError, Timeouts, connect_within};

#[cfg(feature = "tls")]
use super::tls::Tls;
use super::{
    Redis,
    connection::{Connection, Dialer},
    link::Link,
    route::{Route, Topology},
    target::{Deployment, ServerUrl},
};

impl Redis {
    /// Returns immediately, and connects in the background to a server, a primary that sentinels name, or a Cluster.
    ///
    /// Use this to start a service: the service also starts during an outage of the server. Until the first connection
    /// every decision fails immediately, and [`FailureMode`](tower_dist_ratelimit::FailureMode) decides. See
    /// [`RedisBuilder::connect_lazy`].
    ///
    /// The connection lives on the current tokio runtime: decisions fail while this runtime does not run, and after it
    /// has ended.
    ///
    /// # Default
    ///
    /// The defaults of [`RedisBuilder`].
    ///
    /// # Errors
    ///
    /// An invalid URL, or a URL with `rediss` if the feature `tls` is off.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn connect_lazy(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url).connect_lazy()
    }

    /// Connects, and fails if the server cannot be reached now. Use this in tools and tests that need the server. A
    /// service that should start during an outage uses [`connect_lazy`](Self::connect_lazy).
    ///
    /// The connection lives on the current tokio runtime: decisions fail while this runtime does not run, and after it
    /// has ended.
    ///
    /// # Default
    ///
    /// The defaults of [`RedisBuilder`].
    ///
    /// # Errors
    ///
    /// See [`ConnectError`]. In a Cluster, not all primaries have to be reachable.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url).connect().await
    }

    /// Returns a builder with further settings.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tower_dist_ratelimit_redis::Redis;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redis = Redis::builder("rediss://orders:secret@cache.internal")
    ///     .prefix("orders")
    ///     .connect_timeout(Duration::from_secs(2))
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(url: &str) -> RedisBuilder {
        RedisBuilder::new(url)
    }

    /// Uses an existing connection of the `redis` crate. All keys have this [prefix](RedisBuilder::prefix).
    ///
    /// The backend never replaces the connection, so the connection has to reconnect itself. Connections to a Cluster
    /// are not supported. An answer times out after 500 ms. No other public signature contains a type of the `redis`
    /// crate.
    ///
    /// # Errors
    ///
    /// An invalid prefix.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn from_connection<C>(connection: C, prefix: &str) -> Result<Self, ConnectError>
    where
        C: redis::aio::ConnectionLike + Clone + Send + Sync + 'static,
    {
        check_prefix(prefix)?;
        let connection = Connection {
            commands: Arc::new(connection),
            driver: Box::pin(std::future::pending()),
        };
        let link = Link::new(Some(connection), None, Timeouts::default());
        Ok(Self::new(Route::One(link), Arc::from(prefix)))
    }
}

/// A builder of a [`Redis`] backend, from [`Redis::builder`].
#[must_use = "nothing is connected until `connect` or `connect_lazy`"]
pub struct RedisBuilder {
    url: String,
    prefix: String,
    timeouts: Timeouts,
    #[cfg(feature = "tls")]
    root_certificates: Option<Vec<u8>>,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
}

impl RedisBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            prefix: "rl".to_owned(),
            timeouts: Timeouts::default(),
            #[cfg(feature = "tls")]
            root_certificates: None,
            sentinel_user: None,
            sentinel_password: None,
        }
    }

    /// Prefix of all keys: 1 to 64 printable ASCII characters without spaces or braces.
    ///
    /// Services with the same prefix in one database share the limits of equal policies. Some policies with different
    /// quotas [share a count](Redis#keys-and-values), too.
    ///
    /// # Default
    ///
    /// `rl`.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            ..self
        }
    }

    /// Maximum time of [`connect`](Self::connect) as a whole, and of each attempt to connect in the background. Must be
    /// above zero.
    ///
    /// # Default
    ///
    /// 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout;
        self
    }

    /// Timeout of the server's answer to one call. Must be above zero. After two consecutive timeouts the backend
    /// replaces the connection.
    ///
    /// A request waits for this answer at most until its limiter's
    /// [`backend_timeout`](tower_dist_ratelimit::RateLimitLayerBuilder::backend_timeout), which is normally shorter. If
    /// the answer arrives between the two timeouts, the request may have been charged although the limiter did not use
    /// the answer.
    ///
    /// # Default
    ///
    /// 500 ms.
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.answer = timeout;
        self
    }

    /// Root certificates, in PEM, that verify the servers of a URL with `rediss`. They replace the system's
    /// certificates.
    ///
    /// # Default
    ///
    /// The certificates that the system trusts.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn root_certificates(self, pem: impl Into<Vec<u8>>) -> Self {
        Self {
            root_certificates: Some(pem.into()),
            ..self
        }
    }

    /// Password for the sentinels. The password in the URL belongs to the primary only.
    ///
    /// ```no_run
    /// use tower_dist_ratelimit_redis::Redis;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redis = Redis::builder("redis-sentinel://:servers@sentinel-1,sentinel-2,sentinel-3/limits")
    ///     .sentinel_password("sentinels")
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Default
    ///
    /// No password.
    pub fn sentinel_password(self, password: impl Into<String>) -> Self {
        Self {
            sentinel_password: Some(password.into()),
            ..self
        }
    }

    /// User name for the sentinels, with their [password](Self::sentinel_password). The user must be allowed to run
    /// `SENTINEL GET-MASTER-ADDR-BY-NAME`.
    ///
    /// # Default
    ///
    /// The user `default`.
    pub fn sentinel_user(self, user: impl Into<String>) -> Self {
        Self {
            sentinel_user: Some(user.into()),
            ..self
        }
    }

    /// Connects, and fails if the server is unreachable now. A service that should start during an outage uses
    /// [`connect_lazy`](Self::connect_lazy).
    ///
    /// # Errors
    ///
    /// See [`ConnectError`]. In a Cluster, not all primaries have to be reachable. These invalid settings are errors,
    /// too:
    ///
    /// - an invalid URL or prefix, or a timeout of zero;
    /// - credentials for sentinels, if the URL names no sentinels;
    /// - a URL with `rediss` if the feature `tls` is off;
    /// - root certificates that are not valid PEM, that contain an invalid certificate, or that contain no certificate;
    /// - root certificates, if the URL does not use `rediss`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(self) -> Result<Redis, ConnectError> {
        let (target, timeouts) = (ServerUrl::parse(&self.url)?.to_string(), self.timeouts);
        let (topology, prefix) = self.topology()?;
        let route =
            connect_within(timeouts.connect, target, Route::open(topology, timeouts)).await?;
        Ok(Redis::new(route, prefix))
    }

    /// Returns immediately and connects in the background. Use this to start a service: the service also starts during
    /// an outage of the server.
    ///
    /// Until the first connection every decision fails immediately, and
    /// [`FailureMode`](tower_dist_ratelimit::FailureMode) decides. A background task resolves the host, connects and
    /// logs in. So a wrong password or an unreachable host is not an error of this method: instead, the decisions fail.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Limiter, Policy, Quota, Source};
    /// use tower_dist_ratelimit_redis::Redis;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // Nothing listens on this port.
    /// let redis = Redis::builder("redis://127.0.0.1:1").prefix("orders").connect_lazy()?;
    /// let limiter = Limiter::new(redis, Policy::new("login", Quota::per_minute(5)))?;
    /// let decision = limiter.check("client-42").await?;
    /// assert!(decision.allowed);
    /// assert_eq!(decision.source, Source::Local);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Only the invalid settings that [`connect`](Self::connect) lists.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn connect_lazy(self) -> Result<Redis, ConnectError> {
        let timeouts = self.timeouts;
        let (topology, prefix) = self.topology()?;
        Ok(Redis::new(Route::connect_lazy(topology, timeouts), prefix))
    }

    /// Checks all settings. Returns how to connect, and the prefix.
    fn topology(self) -> Result<(Topology, Arc<str>), ConnectError> {
        let target = ServerUrl::parse(&self.url)?;
        check_prefix(&self.prefix)?;
        self.timeouts.check()?;
        self.check_sentinels(&target)?;
        let dialer = Dialer {
            #[cfg(feature = "tls")]
            tls: self.tls(&target)?,
            user: target.user.clone(),
            password: target.password.clone(),
            db: target.db,
        };
        let sentinel_dialer = Dialer {
            #[cfg(feature = "tls")]
            tls: dialer.tls.clone(),
            user: self.sentinel_user,
            password: self.sentinel_password,
            db: 0,
        };
        let topology = Topology::new(target, dialer, sentinel_dialer, self.timeouts)?;
        Ok((topology, Arc::from(self.prefix)))
    }

    #[cfg(feature = "tls")]
    fn tls(&self, target: &ServerUrl) -> Result<Option<Tls>, ConnectError> {
        let roots = self.root_certificates.as_deref();
        if roots.is_some() && !target.tls {
            let problem = "are set, but the URL is not one of rediss://, and nothing is encrypted";
            return Err(ConnectError::new("root_certificates", problem));
        }
        target.tls.then(|| Tls::new(roots)).transpose()
    }

    fn check_sentinels(&self, target: &ServerUrl) -> Result<(), ConnectError> {
        let setting = match (&self.sentinel_user, &self.sentinel_password) {
            (None, None) => return Ok(()),
            (Some(_), _) => "sentinel_user",
            (None, Some(_)) => "sentinel_password",
        };
        if matches!(target.kind, Deployment::Sentinel(_)) {
            return Ok(());
        }
        let problem = "is set, but the URL is not one of redis-sentinel://";
        Err(ConnectError::new(setting, problem))
    }
}

pub(super) fn check_prefix(prefix: &str) -> Result<(), ConnectError> {
    let fine = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
    if (1..=64).contains(&prefix.len()) && prefix.bytes().all(fine) {
        return Ok(());
    }
    let problem = format!(
        "is {prefix:?}, but must be 1 to 64 printable ASCII characters without spaces or braces"
    );
    Err(ConnectError::new("the prefix of keys", problem))
}

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder")
            .field("prefix", &self.prefix)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}
