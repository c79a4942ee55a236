use std::{
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpStream},
    ops::{Deref, DerefMut},
    time::Duration,
};

use super::process::{Server, free_port};

/// Maximum time for an answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// A Memcached server.
#[derive(Debug)]
pub struct Memcached(Server);

impl Memcached {
    /// Starts a server.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with these command-line options, such as `&["-m", "1"]`.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    #[must_use]
    pub fn with(settings: &[&str]) -> Self {
        let port = free_port();
        let listen = port.to_string();
        // Memcached started by root requires `-u`; started by another user it ignores the option.
        let mut command = vec![
            "memcached",
            "-l",
            "127.0.0.1",
            "-p",
            &listen,
            "-U",
            "0",
            "-u",
            "nobody",
        ];
        command.extend(settings);
        Self(Server::start(&command, port))
    }

    /// The server's URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("memcached://127.0.0.1:{}", self.port())
    }

    /// Sends a command with optional data over a new connection, and returns the lines of the answer.
    ///
    /// # Panics
    ///
    /// Panics if no answer comes.
    /// When there is no answer.
    #[expect(
        clippy::must_use_candidate,
        reason = "most commands are for what they do"
    )]
    pub fn call(&self, command: &str) -> Vec<String> {
        let answer = call(self.port(), command);
        answer.unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// All keys, except the key with which a connection checks the server.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let lines = self.call("lru_crawler metadump all");
        let keys = lines.iter().filter_map(|line| {
            let key = line.strip_prefix("key=")?.split(' ').next()?;
            Some(key.replace("%3A", ":").replace("%20", " "))
        });
        let mut keys: Vec<String> = keys.filter(|key| !key.ends_with(":probe")).collect();
        keys.sort();
        // The crawler can list a key twice, if the server moves its item to another list meanwhile.
        keys.dedup();
        keys
    }

    /// The number of commands on keys that the server has executed.
    #[must_use]
    pub fn commands(&self) -> u64 {
        let lines = self.call("stats");
        let counted = lines.iter().filter_map(|line| {
            let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
            let (what, _) = name.rsplit_once('_').unwrap_or((name, ""));
            let gets_and_sets = ["cmd_get", "cmd_set", "cmd_touch"].contains(&name);
            // Memcached counts these commands by hits and misses.
            let others = ["incr", "decr", "delete"].contains(&what);
            (gets_and_sets || others).then(|| value.parse::<u64>().ok())?
        });
        counted.sum()
    }

    /// A number from the server's statistics, such as `curr_connections`.
    ///
    /// # Panics
    ///
    /// Panics if the statistics lack the number.
    #[must_use]
    pub fn stat(&self, name: &str) -> u64 {
        let lines = self.call("stats");
        let line = lines.iter().find_map(|line| {
            let (found, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
            (found == name).then(|| value.parse().ok())?
        });
        line.unwrap_or_else(|| panic!("no {name} in {lines:?}"))
    }
}

fn call(port: u16, command: &str) -> io::Result<Vec<String>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // Lists have their own end line. Other answers have a variable number of lines, so a command with a known answer
    // follows.
    let end = match command.split(' ').next() {
        Some("lru_crawler" | "stats") => "END",
        _ => "MN",
    };
    let more = if end == "MN" { "mn\r\n" } else { "" };
    stream.write_all(format!("{command}\r\n{more}").as_bytes())?;
    let mut lines = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line = line?;
        if line == end {
            return Ok(lines);
        }
        lines.push(line);
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

impl Deref for Memcached {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl DerefMut for Memcached {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.0
    }
}
