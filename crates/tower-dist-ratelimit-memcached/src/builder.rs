use std::{fmt, sync::Arc, time::Duration};

use tower_dist_ratelimit::backend::toolkit::{ConnectError, Timeouts};

use super::{
    Memcached,
    key::seed,
    link::{Link, Target},
    target,
};

impl Memcached {
    /// Connects to one server or several, in the background. Returns at once.
    ///
    /// This is the way to start a service: it starts during an outage of the servers, too. Until the first connection
    /// every decision fails at once, and [`FailureMode`](tower_dist_ratelimit::FailureMode) decides. See
    /// [`MemcachedBuilder::connect_lazy`].
    ///
    /// # Default
    ///
    /// Those of [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// A URL that cannot be read.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, on which the connections live.
    pub fn connect_lazy(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url).connect_lazy()
    }

    /// Connects like [`connect_lazy`](Self::connect_lazy), and fails if a server cannot be reached now. For tools and
    /// tests that cannot do without the servers.
    ///
    /// # Default
    ///
    /// Those of [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// See [`ConnectError`]. A server that is not there yet is not waited for.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, on which the connections live.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url).connect().await
    }

    /// The same, with settings.
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

    /// What all keys begin with: 1 to 64 printable ASCII characters, without spaces.
    ///
    /// Services that share a server and have policies of the same name share their limits, if they have the same prefix.
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

    /// How long [`connect`](Self::connect) waits for each server; and each attempt to connect again later. Above zero.
    ///
    /// # Default
    ///
    /// 5 s.
    pub fn connect_timeout(mut self, deadline: Duration) -> Self {
        self.timeouts.connect = deadline;
        self
    }

    /// How long the server may take for an answer, before the connection is given up and made anew; and how long a
    /// compare-and-swap is tried that others come before.
    ///
    /// It is not what a request waits for: that is the deadline of whoever asks, which is shorter. What comes after it,
    /// but within this time, is charged and not read by anyone. Above zero.
    ///
    /// # Default
    ///
    /// 500 ms.
    pub fn answer_timeout(mut self, deadline: Duration) -> Self {
        self.timeouts.answer = deadline;
        self
    }

    /// Connects to all servers, and fails if one cannot be reached now. For a service that should start during an
    /// outage, use [`connect_lazy`](Self::connect_lazy).
    ///
    /// # Errors
    ///
    /// See [`ConnectError`]; a prefix that cannot be one; and a deadline of zero.
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

    /// Returns at once and connects to all servers in the background, until it succeeds. This is the way to start a
    /// service: it also starts during an outage of the servers.
    ///
    /// Until the first connection to a server every decision on its keys fails at once, and
    /// [`FailureMode`](tower_dist_ratelimit::FailureMode) decides. Nothing is sent or resolved here.
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
    /// The same as those of [`connect`](Self::connect), except those that only a server can cause.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn connect_lazy(self) -> Result<Memcached, ConnectError> {
        let prefix = Arc::from(&*self.prefix);
        let targets = self.targets(&prefix)?;
        let links = targets
            .into_iter()
            .map(|(seed, target)| (seed, Link::later(target)));
        Ok(Memcached::new(
            links.collect(),
            prefix,
            self.timeouts.answer,
        ))
    }

    /// Checks all settings; the servers by their seeds.
    fn targets(&self, prefix: &Arc<str>) -> Result<Vec<(u64, Target)>, ConnectError> {
        let addresses = target::parse(&self.url)?;
        check_prefix(&self.prefix)?;
        self.timeouts.check()?;
        let targets = addresses.into_iter().map(|address| {
            let seed = seed(&address.to_string());
            let target = Target {
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
