use std::ops::{Deref, DerefMut};

use super::{
    process::{Server, free_port},
    resp::{Reply, Resp},
};

/// A Redis server that keeps everything in memory.
#[derive(Debug)]
pub struct Redis(Server);

impl Redis {
    /// Starts a server.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with these command-line options, such as `&["--maxclients", "10"]`.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    #[must_use]
    pub fn with(settings: &[&str]) -> Self {
        Self::on(free_port, settings)
    }

    /// Starts a server on one of these ports.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    #[must_use]
    pub fn on(port: impl Fn() -> u16, settings: &[&str]) -> Self {
        let command = |port: &str| {
            let program = [&redis_server(), "--port", port].map(str::to_owned);
            let settings = BARE.iter().chain(settings).map(|&part| part.to_owned());
            program.into_iter().chain(settings).collect()
        };
        Self(Server::start_on(port, command))
    }

    /// The server's URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Sends a command over a new connection.
    ///
    /// # Panics
    ///
    /// Panics if no answer comes or the answer is an error.
    #[expect(
        clippy::must_use_candidate,
        reason = "most commands are for what they do"
    )]
    pub fn call(&self, command: &[&str]) -> Reply {
        call(self.port(), command)
    }

    /// All keys.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let mut keys = self.call(&["KEYS", "*"]).texts();
        keys.sort();
        keys
    }
}

/// The program to start: `redis-server`, or the value of the environment variable `REDIS_SERVER`, such as
/// `valkey-server`.
#[must_use]
pub fn redis_server() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// No persistence, and only loopback connections.
pub(super) const BARE: [&str; 8] = [
    "--bind",
    "127.0.0.1",
    "--save",
    "",
    "--appendonly",
    "no",
    "--daemonize",
    "no",
];

/// Sends a command to a port over a new connection.
pub(super) fn call(port: u16, command: &[&str]) -> Reply {
    let answer = Resp::connect(port).and_then(|mut resp| resp.call(command));
    match answer {
        Ok(Reply::Error(error)) => panic!("{command:?}: {error}"),
        answer => answer.unwrap_or_else(|error| panic!("{command:?}: {error}")),
    }
}

impl Deref for Redis {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl DerefMut for Redis {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.0
    }
}
