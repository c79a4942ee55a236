use std::{fmt, sync::Arc, time::Duration};

use tower_dist_ratelimit::backend::toolkit::{ConnectError, Timeouts};

use super::{
    Memcached,
    key::seed,
    link::{Link, ServerSettings},
    target,
};

impl Memcached {
    /// Connects to one or several servers in the background, and returns immediately.
    ///
    /// Use this in a service, so that the service also starts during an outage of the servers. Until the first
    /// connection to a server, every decision on its keys fails immediately. The
    /// [`FailureMode`](tower_dist_ratelimit::FailureMode) then decides what happens to the request. See
    /// [`MemcachedBuilder::connect_lazy`].
    ///
    /// # Default
    ///
    /// The defaults of [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// An invalid URL.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime. The connections live on the caller's runtime.
    pub fn connect_lazy(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url).connect_lazy()
    }

    /// Connects to one or several servers, and fails if one of them is unreachable. Use this in tools and tests that
    /// need the servers; services use [`connect_lazy`](Self::connect_lazy).
    ///
    /// # Default
    ///
    /// The defaults of [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// See [`ConnectError`]. A failed attempt is not repeated.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime. The connections live on the caller's runtime.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url).connect().await
    }

    /// Returns a builder of a connection to the servers of `url`.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tower_dist_ratelimit_memcached::Memcached;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let memcached = Memcached::builder("memcached://cache-1.internal,cache-2.internal")
    ///     .prefix("orders")
    ///     .connect_timeout(Duration::from_secs(2))
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(url: &str) -> MemcachedBuilder {
        MemcachedBuilder::new(url)
    }
}

/// Settings of a connection to Memcached, from [`Memcached::builder`].
#[must_use = "nothing is connected until `connect` or `connect_lazy`"]
pub struct MemcachedBuilder {
    url: String,
    prefix: String,
    timeouts: Timeouts,
}

impl MemcachedBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            prefix: "rl".to_owned(),
            timeouts: Timeouts::default(),
        }
    }

    /// The first part of every key: 1 to 64 printable ASCII characters without spaces.
    ///
    /// Services with the same prefix on one server share the counts of policies with the same name and algorithm.
    /// Windows and logs share a count only if they have the same length, and sliding windows only if they also have the
    /// same number of buckets. Otherwise the policies count separately. Several policies of one layer or limiter form a
    /// [set](crate::Memcached#algorithms). Two sets share their counts only if their policies, in the same order, match
    /// by these rules.
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

    /// Maximum time of one attempt to connect to a server, above zero. Reconnects have the same timeout.
    ///
    /// # Default
    ///
    /// 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout;
        self
    }

    /// Maximum time until the server answers a command, above zero. If an answer takes longer, the backend reconnects.
    ///
    /// If another process changes a [value](Memcached#values) first, a charge to the value is retried for at most this
    /// timeout. A [correction](Memcached::lost_corrections), which is a refund or an extra charge, is then usually
    /// retried for about 5 s. The layer's own [timeout](tower_dist_ratelimit::RateLimitLayerBuilder::backend_timeout)
    /// is shorter by default, and ends the wait of a request earlier. Such a request may still be charged.
    ///
    /// # Default
    ///
    /// 500 ms.
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.answer = timeout;
        self
    }

    /// Connects to all servers, one after the other, and fails if one of them is unreachable. A service that should
    /// start during an outage uses [`connect_lazy`](Self::connect_lazy).
    ///
    /// # Errors
    ///
    /// An invalid URL or prefix, a timeout of zero, an unreachable or unsuitable server, or a timeout. Unsuitable
    /// servers are, for example, older than Memcached 1.6.10, or have no compare-and-swap.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(self) -> Result<Memcached, ConnectError> {
        let prefix = Arc::from(&*self.prefix);
        let targets = self.targets(&prefix)?;
        let mut servers = Vec::with_capacity(targets.len());
        for (seed, target) in targets {
            servers.push((seed, Link::new(target).await?));
        }
        Ok(Memcached::new(servers.into(), prefix, self.timeouts.answer))
    }

    /// Connects to all servers in the background, and returns immediately. Use this in a service, so that the service
    /// also starts during an outage of the servers.
    ///
    /// Until the first connection to a server, every decision on [its share of the keys](Memcached#servers) fails
    /// immediately, and [`FailureMode`](tower_dist_ratelimit::FailureMode) decides instead. Host names are resolved in
    /// the background, too.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Limiter, Policy, Quota, Source};
    /// use tower_dist_ratelimit_memcached::Memcached;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // Nothing listens on this port.
    /// let memcached = Memcached::builder("memcached://127.0.0.1:1").prefix("orders").connect_lazy()?;
    /// let limiter = Limiter::new(memcached, Policy::new("login", Quota::per_minute(5)))?;
    /// let decision = limiter.check("client-42").await?;
    /// assert!(decision.allowed);
    /// assert_eq!(decision.source, Source::Local);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// An invalid setting or URL.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn connect_lazy(self) -> Result<Memcached, ConnectError> {
        let prefix = Arc::from(&*self.prefix);
        let targets = self.targets(&prefix)?;
        let links = targets
            .into_iter()
            .map(|(seed, target)| (seed, Link::connect_lazy(target)));
        Ok(Memcached::new(
            links.collect(),
            prefix,
            self.timeouts.answer,
        ))
    }

    /// Checks all settings. Returns the servers, each with the [`seed`] of its name.
    fn targets(&self, prefix: &Arc<str>) -> Result<Vec<(u64, ServerSettings)>, ConnectError> {
        let addresses = target::parse(&self.url)?;
        check_prefix(&self.prefix)?;
        self.timeouts.check()?;
        let targets = addresses.into_iter().map(|address| {
            let seed = seed(&address.to_string());
            let target = ServerSettings {
                address,
                prefix: Arc::clone(prefix),
                timeouts: self.timeouts,
            };
            (seed, target)
        });
        Ok(targets.collect())
    }
}

fn check_prefix(prefix: &str) -> Result<(), ConnectError> {
    if (1..=64).contains(&prefix.len()) && prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    let problem =
        format!("is {prefix:?}, but must be 1 to 64 printable ASCII characters without spaces");
    Err(ConnectError::new("the prefix of keys", problem))
}

impl fmt::Debug for MemcachedBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemcachedBuilder")
            .field("prefix", &self.prefix)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}
