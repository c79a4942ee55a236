use std::{fmt, sync::Arc, time::Duration};

use super::{
    Memcached,
    key::seed,
    link::{Link, Target},
    target,
};
use crate::backend::{ConnectError, patience::Patience};

/// Settings of a connection to Memcached, from [`Memcached::builder`].
#[must_use = "nothing is connected until `connect`"]
pub struct MemcachedBuilder {
    url: String,
    prefix: String,
    patience: Patience,
}

impl MemcachedBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            prefix: "rl".to_owned(),
            patience: Patience::default(),
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
    pub fn connect_deadline(mut self, deadline: Duration) -> Self {
        self.patience.connect = deadline;
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
    pub fn answer_deadline(mut self, deadline: Duration) -> Self {
        self.patience.answer = deadline;
        self
    }

    /// Connects to all servers.
    ///
    /// # Errors
    ///
    /// See [`ConnectError`]; a prefix that cannot be one; and a deadline of zero.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(self) -> Result<Memcached, ConnectError> {
        let addresses = target::parse(&self.url)?;
        check_prefix(&self.prefix)?;
        self.patience.check()?;
        let prefix: Arc<str> = Arc::from(self.prefix);
        let mut servers = Vec::with_capacity(addresses.len());
        for address in addresses {
            let seed = seed(&address.to_string());
            let target = Target {
                address,
                prefix: Arc::clone(&prefix),
                patience: self.patience,
            };
            servers.push((seed, Link::new(target).await?));
        }
        Ok(Memcached::new(servers, prefix))
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
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
