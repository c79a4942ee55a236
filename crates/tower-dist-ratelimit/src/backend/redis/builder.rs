use std::{fmt, sync::Arc, time::Duration};

use super::{
    ConnectError, Redis, link::Patience, route::Route, target::Target, tls::Tls, wire::Dialer,
};

/// Settings of a connection to Redis, from [`Redis::builder`].
#[must_use = "nothing is connected until `connect`"]
pub struct RedisBuilder {
    url: String,
    prefix: String,
    patience: Patience,
    root_certificates: Option<Vec<u8>>,
}

impl RedisBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            prefix: "rl".to_owned(),
            patience: PATIENCE,
            root_certificates: None,
        }
    }

    /// What all keys begin with: 1 to 64 printable ASCII characters, without braces, which have a meaning in keys.
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

    /// How long [`connect`](Self::connect) waits for everything that it does; and each attempt to connect again later.
    ///
    /// # Default
    ///
    /// 5 s.
    pub fn connect_deadline(mut self, deadline: Duration) -> Self {
        self.patience.connect = deadline;
        self
    }

    /// How long the server may take for an answer, before the call fails; after two such calls in a row the connection
    /// is given up and made anew.
    ///
    /// It is not what a request waits for: that is the deadline of whoever asks, which is shorter. What comes after it,
    /// but within this time, is charged and not read by anyone.
    ///
    /// # Default
    ///
    /// 500 ms.
    pub fn answer_deadline(mut self, deadline: Duration) -> Self {
        self.patience.answer = deadline;
        self
    }

    /// Trusts these certificates, in PEM, to vouch for servers of `rediss://`; and no others.
    ///
    /// # Default
    ///
    /// Those that the system trusts.
    pub fn root_certificates(self, pem: impl Into<Vec<u8>>) -> Self {
        Self {
            root_certificates: Some(pem.into()),
            ..self
        }
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// See [`ConnectError`]; and a prefix that cannot be one.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(self) -> Result<Redis, ConnectError> {
        let target = Target::parse(&self.url)?;
        check_prefix(&self.prefix)?;
        let roots = self.root_certificates.as_deref();
        let dialer = Dialer {
            tls: target.tls.then(|| Tls::new(roots)).transpose()?,
            user: target.user.clone(),
            password: target.password.clone(),
            db: target.db,
        };
        let route = Route::open(target, dialer, self.patience).await?;
        Ok(Redis::new(route, Arc::from(self.prefix)))
    }
}

/// What is waited where nothing else is said.
pub(super) const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(5),
    answer: Duration::from_millis(500),
};

pub(super) fn check_prefix(prefix: &str) -> Result<(), ConnectError> {
    let fine = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
    if (1..=64).contains(&prefix.len()) && prefix.bytes().all(fine) {
        return Ok(());
    }
    let problem =
        format!("is {prefix:?}, but must be 1 to 64 printable ASCII characters without braces");
    Err(ConnectError::new("the prefix of keys", problem))
}

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder")
            .field("prefix", &self.prefix)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
