use std::ops::{Deref, DerefMut};

use super::{
    process::{Server, free_port},
    resp::{Reply, Resp},
};

/// A Redis server that keeps everything in memory.
#[derive(Debug)]
pub struct Redis(Server);

impl Redis {
    /// Starts one.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts one with these settings, as on its command line: `&["--maxclients", "10"]`.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn with(settings: &[&str]) -> Self {
        Self::on(free_port, settings)
    }

    /// Starts one on one of these ports.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn on(port: impl Fn() -> u16, settings: &[&str]) -> Self {
        let command = |port: &str| {
            let program = [&redis_server(), "--port", port].map(str::to_owned);
            let settings = BARE.iter().chain(settings).map(|&part| part.to_owned());
            program.into_iter().chain(settings).collect()
        };
        Self(Server::start_on(port, command))
    }

    /// How to reach it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Sends a command over a connection of its own.
    ///
    /// # Panics
    ///
    /// When there is no answer, or it is an error.
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

/// The program that is started: `redis-server`, or what the environment variable `REDIS_SERVER` says, which can be
/// `valkey-server`.
#[must_use]
pub fn redis_server() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// Nothing on disk, only this machine.
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

/// Sends a command to a port over a connection of its own.
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
