use std::time::Duration;

use tempfile::TempDir;

use super::{
    process::{Server, free_port, pause},
    redis::{Redis, call, redis_server},
};

/// A primary, its replica, and three sentinels that monitor them.
#[derive(Debug)]
pub struct Sentinels {
    /// The first server is the primary at the start.
    servers: Vec<Redis>,
    sentinels: Vec<Server>,
}

impl Sentinels {
    /// The name by which the sentinels know the primary.
    pub const NAME: &str = "limits";

    /// Starts all processes and waits until they know each other.
    ///
    /// # Panics
    ///
    /// Panics if that takes more than 60 s.
    #[must_use]
    pub fn start() -> Self {
        let primary = Redis::with(&["--repl-diskless-sync-delay", "0"]);
        let port = primary.port().to_string();
        let replica = Redis::with(&[
            "--replicaof",
            "127.0.0.1",
            &port,
            "--repl-diskless-sync-delay",
            "0",
        ]);
        let sentinels = (0..3).map(|_| sentinel(primary.port(), "")).collect();
        let set = Self {
            servers: vec![primary, replica],
            sentinels,
        };
        for _ in 0..600 {
            if set.ready() {
                return set;
            }
            pause(Duration::from_millis(100));
        }
        panic!("the sentinels do not find each other");
    }

    /// Starts one server with these settings, and one sentinel whose configuration file has these additional lines.
    #[must_use]
    pub fn single(server: &[&str], lines: &str) -> Self {
        let primary = Redis::with(server);
        let sentinels = vec![sentinel(primary.port(), lines)];
        Self {
            servers: vec![primary],
            sentinels,
        }
    }

    fn ready(&self) -> bool {
        self.sentinels.iter().all(|sentinel| {
            let state = call(sentinel.port(), &["SENTINEL", "MASTER", Self::NAME]).texts();
            let says = |name: &str| {
                let place = state.iter().position(|text| text == name);
                place
                    .and_then(|place| state.get(place + 1))
                    .map_or("", String::as_str)
            };
            says("num-slaves") == "1"
                && says("num-other-sentinels") == "2"
                && says("flags") == "master"
        }) && self.servers[1]
            .call(&["INFO", "replication"])
            .text()
            .contains("master_link_status:up")
    }

    /// The URL of the current primary, through the sentinels.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("")
    }

    /// The same URL with credentials of the servers: `user:password@`.
    #[must_use]
    pub fn url_of(&self, user: &str) -> String {
        let hosts: Vec<String> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis-sentinel://{user}{}/{}", hosts.join(","), Self::NAME)
    }

    /// The port of the primary according to the last sentinel.
    #[must_use]
    pub fn primary(&self) -> u16 {
        let address = call(
            self.sentinels[self.sentinels.len() - 1].port(),
            &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME],
        );
        address
            .texts()
            .get(1)
            .and_then(|port| port.parse().ok())
            .unwrap_or(0)
    }

    /// The sentinels, in the order of the URL.
    #[must_use]
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The servers; the first is the primary at the start.
    pub fn servers_mut(&mut self) -> &mut [Redis] {
        &mut self.servers
    }
}

fn sentinel(primary: u16, lines: &str) -> Server {
    let dir = TempDir::new().expect("a directory for a sentinel");
    let port = free_port();
    let (name, quorum) = (Sentinels::NAME, 2);
    let settings = format!(
        "bind 127.0.0.1\nport {port}\nsentinel monitor {name} 127.0.0.1 {primary} {quorum}\n\
         sentinel down-after-milliseconds {name} 1000\nsentinel failover-timeout {name} 5000\n{lines}\n"
    );
    let file = dir.path().join("sentinel.conf");
    std::fs::write(&file, settings).expect("a sentinel's settings");
    let file = file.to_string_lossy().into_owned();
    Server::start_in(dir, &[&redis_server(), &file, "--sentinel"], port)
}
